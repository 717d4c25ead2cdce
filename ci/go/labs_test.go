// Package labs runs labs as tests of a Go project, through the command svclab and its JUnit
// output. Each case of each lab is a subtest. Copy this file with ci/labs next to it.
package labs

import (
	"bytes"
	"encoding/xml"
	"errors"
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
			Failure *trouble `xml:"failure"`
			Error   *trouble `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type trouble struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func TestLabs(t *testing.T) {
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
	var complaints bytes.Buffer
	command.Stderr = &complaints
	printed, err := command.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("svclab cannot be run: %v", err)
	}
	var all report
	if wrong := xml.Unmarshal(printed, &all); wrong != nil {
		t.Fatalf("svclab ended (%v) without results: %s", err, complaints.String())
	}
	ran := 0
	for _, suite := range all.Suites {
		for _, one := range suite.Cases {
			ran++
			t.Run(suite.Name+"/"+one.Name, func(t *testing.T) {
				for _, trouble := range []*trouble{one.Failure, one.Error} {
					if trouble != nil {
						t.Errorf("%s\n%s", trouble.Message, trouble.Text)
					}
				}
			})
		}
	}
	if ran == 0 {
		t.Fatal("no case was run")
	}
}
