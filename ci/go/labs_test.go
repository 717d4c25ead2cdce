// Package labs runs labs as tests of a Go project, through the command svclab and its JUnit
// output. Each case of each lab is a subtest. Copy this file into a directory of your project, and
// ci/labs next to this directory: the test reads ../labs. Run it with `go test -count=1 ./...`: Go does
// not know that the result depends on the labs, svclab and kube-proxy, and would show an old one.
// The test runs in its own directory, so give KUBE_PROXY as an absolute path.
package labs

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

type report struct {
	Suites []struct {
		Name  string `xml:"name,attr"`
		Cases []struct {
			Name    string   `xml:"name,attr"`
			Failure *failure `xml:"failure"`
			Error   *failure `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type failure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func TestLabs(t *testing.T) {
	// Go passes this flag if it may reuse the result (Go 1.21, src/cmd/go/internal/test/test.go).
	if log := flag.Lookup("test.testlogfile"); log != nil && log.Value.String() != "" {
		t.Fatal("Go would reuse the result of an earlier run: add -count=1")
	}
	labs, err := filepath.Glob("../labs/*.yaml")
	if err != nil || len(labs) == 0 {
		t.Fatalf("no labs: %v", err)
	}
	arguments := []string{"run", "--format", "junit"}
	// Use the kube-proxy that this project builds instead of generated rules.
	if proxy := os.Getenv("KUBE_PROXY"); proxy != "" {
		arguments = append(arguments, "--kube-proxy", proxy)
	}
	svclab := os.Getenv("SVCLAB")
	if svclab == "" {
		svclab = "svclab"
	}
	command := exec.Command(svclab, append(arguments, labs...)...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot run svclab: %v", err)
	}
	var results report
	if invalid := xml.Unmarshal(output, &results); invalid != nil {
		t.Fatalf("svclab printed no results (%v): %s", err, stderr.String())
	}
	ran, failures := 0, 0
	for _, suite := range results.Suites {
		for _, result := range suite.Cases {
			ran++
			t.Run(suite.Name+"/"+result.Name, func(t *testing.T) {
				for _, failed := range []*failure{result.Failure, result.Error} {
					if failed != nil {
						failures++
						t.Errorf("%s\n%s", failed.Message, failed.Text)
					}
				}
			})
		}
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
	// The run can fail although no case did, for example if the machine changed.
	if err != nil && failures == 0 {
		t.Fatalf("svclab: %v: %s", err, stderr.String())
	}
}
