//! A fake kube-proxy. The program requests objects from its API server, some of which do not exist.
//! Then it exits, waits, or reports that it has written rules, at once and after a step.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The last line that the program prints before it waits.
pub const LAST_LINE: &str = "I wait for policies";

/// Exits with an error.
pub const EXITS: &str = r#"print STDERR "I cannot do without policies\n"; exit 3;"#;

/// Reports in its metrics that it has never written rules.
pub const NEVER_SYNCS: &str = r#"print STDERR "I wait for policies\n"; metrics(0);"#;

/// Reports in its metrics that it has written rules.
pub const SYNCS: &str = "lists(); metrics(1);";

/// Reports written rules, but has not requested services and endpoints.
pub const SYNCS_WITHOUT_OBJECTS: &str = "metrics(1);";

/// Serves 5 MiB of metrics.
pub const LARGE_METRICS: &str = r#"metrics("0" x (5 << 20));"#;

/// Reports written rules of another mode than that of the lab.
pub const OTHER_MODE: &str = r#"lists(); metrics(1, undef, "ipvs");"#;

/// Fails to write rules; logs and counts the failure.
pub const SYNC_FAILS: &str = "lists(); fails(0);";

/// Fails once, and succeeds after some reads of its metrics.
pub const SYNC_RECOVERS: &str = "lists(); fails(5);";

/// Reports written rules. After it receives an endpoint with this address, the program makes
/// another refused request and reports written rules again.
pub const SYNCS_AFTER_STEP: &str = r#"lists(); metrics(1, "10.244.1.11");"#;

/// Script in Perl, which every Debian has, with modules of `perl-base` only. The reported version
/// is v1.32.1: from v1.32 on, kube-proxy does not call `conntrack`, which a machine may lack.
const SCRIPT: &str = r#"#!/usr/bin/perl
use strict;
use IO::Socket::INET;

sub ask {
    my ($request) = @_;
    my $api = IO::Socket::INET->new("127.0.0.1:16443") or die "no API server: $!\n";
    print $api "$request HTTP/1.1\r\nHost: api\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    my $status = <$api>;
    return ($status, join "", <$api>);
}

sub asks {
    my ($request) = @_;
    my ($status, $body) = ask($request);
    print STDERR "$request: $status";
    return $body;
}

sub lists {
    ask("GET /api/v1/services");
    ask("GET /apis/discovery.k8s.io/v1/endpointslices");
}

sub metrics {
    my ($written, $awaited, $mode) = @_;
    my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:10249", Listen => 8, ReuseAddr => 1)
        or die "no socket: $!\n";
    while (my $client = $server->accept()) {
        my $request = <$client>;
        while (my $line = <$client>) { last if $line eq "\r\n"; }
        if ($mode && $request =~ m{ /proxyMode }) {
            print $client "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n$mode";
            close $client;
            next;
        }
        if ($awaited && asks("GET /apis/discovery.k8s.io/v1/endpointslices") =~ /"\Q$awaited\E"/) {
            asks("GET /apis/x.example/v1/shards");
            $written++;
            $awaited = undef;
        }
        print $client "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
            "kubeproxy_sync_proxy_rules_duration_seconds_count $written\n";
        close $client;
    }
}

sub fails {
    my ($reads) = @_;
    my $failed = "Failed to execute iptables-restore: exit status 1 (Message too long)";
    print STDERR "E1122 09:00:00.000000 1 proxier.go:1595] $failed\n";
    my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:10249", Listen => 8, ReuseAddr => 1)
        or die "no socket: $!\n";
    my $syncs = 1;
    while (my $client = $server->accept()) {
        while (my $line = <$client>) { last if $line eq "\r\n"; }
        $syncs++ if $reads && --$reads == 0;
        print $client "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
            "kubeproxy_sync_proxy_rules_duration_seconds_count $syncs\n",
            "kubeproxy_sync_proxy_rules_iptables_restore_failures_total 1\n";
        close $client;
    }
}

if (grep { $_ eq "--version" } @ARGV) {
    print "Kubernetes v1.32.1\n";
    exit 0;
}
$| = 1;
asks("GET /api/v1/nodes/node-1");
asks("GET /apis/x.example/v1/policies?limit=500&resourceVersion=0");
asks("POST /apis/events.k8s.io/v1/namespaces/default/events");
asks("PUT /api/v1/nodes/node-1");
asks("GET /apis/x.example/v1/policies?limit=500&resourceVersion=7");
"#;

/// Writes the program to a directory.
pub fn write_fake_kube_proxy(directory: &Path, ending: &str) -> PathBuf {
    let path = directory.join("kube-proxy");
    fs::write(&path, format!("{SCRIPT}{ending}\n")).expect("a file");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("permissions");
    path
}
