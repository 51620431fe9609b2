package command

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/exit"
)

// Mistakes on the command line are named, with exit status 2, and nothing is printed or written. What is wrong with a
// folder or another process has other statuses.
func TestRejectedCommandLines(t *testing.T) {
	t.Parallel()
	statuses := map[string]int{
		"no-such-folder": exit.No, "nobody": exit.No, "owner.yaml": exit.No, "127.0.0.1:1 xds:///a /a.B/C\x00": exit.Unreachable,
	}
	for _, test := range []struct{ args, want string }{
		{"serve", "want a folder or a store, one of them: dynxds serve {DIR | --store URL}"},
		{"serve " + exampleMesh + " --store etcd://localhost:1", "want a folder or a store, one of them"},
		{"serve --store localhost:1", `--store "localhost:1": want etcd://HOST:2379,HOST2:2379/PREFIX`},
		{"serve " + exampleMesh + " --tls-cert a.pem", "--tls-cert needs --tls-key"},
		{"serve " + exampleMesh + " --poll -1s", `invalid argument "-1s" for "--poll" flag: want a duration that is not negative; see dynxds serve --help`},
		{"serve " + exampleMesh + " --removal-delay -1s", `"--removal-delay" flag: want a duration that is not negative`},
		{"serve " + exampleMesh + " --log-level loud", `invalid argument "loud" for "--log-level" flag: want debug, info, warn or error`},
		{"serve " + exampleMesh + " --log-format xml", `"--log-format" flag: want text or json`},
		{"serve " + exampleMesh + " --listen nowhere", "--listen nowhere"},
		{"serve " + exampleMesh + " --listen unix:", `--listen "unix:": want HOST:PORT or unix:PATH`},
		{"serve " + exampleMesh + " --listen=", `--listen "": want HOST:PORT or unix:PATH`},
		{"serve " + exampleMesh + " --poll 0", `"--poll" flag: want a duration above 0`},
		{"serve " + exampleMesh + " --grace -1s", `"--grace" flag: want a duration that is not negative`},
		{"serve " + exampleMesh + " --max-streams 0", `invalid argument "0" for "--max-streams" flag: want a positive number`},
		{"relay", "--bootstrap is missing"},
		{"relay --bootstrap b.json --linger -1s", `"--linger" flag: want a duration that is not negative`},
		{"relay --bootstrap b.json --max-upstreams -1", `"--max-upstreams" flag: want a positive number`},
		{"apply", "want one argument, got 0: dynxds apply DIR [flags]"},
		{"apply dir", "which store? Use --store etcd://HOST:2379"},
		{"serve no-such-folder --listen localhost:0", "dynxds: there is no folder no-such-folder\n"},
		{"serve " + exampleMesh + "/owner.yaml --listen localhost:0", "owner.yaml is not a folder; name the folder that has the files"},
		{"publish " + exampleMesh, `there is no command "publish"; see dynxds --help`},
		{"render " + exampleMesh + " --output xml", `invalid argument "xml" for "-o, --output" flag: want yaml or json`},
		{"render " + exampleMesh + " --service nobody", `there is no service "nobody"; there are backend, frontend`},
		{"render " + exampleMesh + " --explain --output json", "[explain output]"},
		{"render " + exampleMesh + " --explain --service nobody", `there is no service "nobody"`},
		{"render " + exampleMesh + " --client service=frontend,version", `"version" is not of the form key=value; see dynxds render --help`},
		{"bootstrap --server localhost:1 --metadata frontend", `"frontend" is not of the form key=value`},
		{"validate no-such-folder", "no-such-folder"},
		{"bootstrap", "--server is missing"},
		{"render . --kind java", `invalid argument "java" for "--kind" flag: want dynxds, grpc-go, grpc or envoy`},
		{"bootstrap --server=", `--server "": want a gRPC target, such as localhost:18000`},
		{"clients --admin=", "--admin is empty: want HOST:PORT"},
		{"clients --admin localhost:1,", "--admin is empty: want HOST:PORT"},
		{"top --admin=", "--admin is empty: want HOST:PORT"},
		{"top localhost:1 --admin=localhost:2", "--admin and --store are for control planes; localhost:1 is a process"},
		{"top --tls", "--tls is for a process: dynxds top HOST:PORT --tls"},
		{"top a:1 b:1", "want at most one argument, got 2"},
		{"help relya", `there is no command "relya"; did you mean relay?`},
		{"completion zhs", `there is no command "zhs"; did you mean zsh?`},
		{"explain /a.B/C", "want two or three arguments, got 1: dynxds explain DIR|HOST:PORT [TARGET] METHOD"},
		{"explain a b c d", "want two or three arguments, got 4"},
		{"explain " + exampleMesh + " /a.B/C", "which service is called? Add --service NAME"},
		{"explain " + exampleMesh + " xds:///a /a.B/C --service b", "both --service b and the target xds:///a are given"},
		{"explain " + exampleMesh + " /a.B/C --service nobody", `there is no service "nobody"; there are backend`},
		{"explain " + exampleMesh + " a.B/C --service backend", `did you mean "/a.B/C"?`},
		{"explain " + exampleMesh + " a.B.C --service backend", `did you mean "/a.B/C"?`},
		{"explain " + exampleMesh + " /a.B --service backend", `"/a.B": want the full method, "/package.Service/Method"`},
		{"explain " + exampleMesh + " /a.B/C --service backend -H x", `header "x": want 'name: value'`},
		{"explain " + exampleMesh + " /a.B/C --service backend -H 'a b: c'", `"a b" is not the name of a header`},
		{"explain " + exampleMesh + " /a.B/C --service backend -H 'host: c'", `header "host" is made by gRPC`},
		{"explain " + exampleMesh + " /a.B/C --service backend --kind curl", `"--kind" flag: want dynxds, grpc-go`},
		{"explain nowhere /a.B/C --service backend", `"nowhere" is neither a folder nor the address of a process`},
		{"explain 127.0.0.1:1 xds:///a /a.B/C --client service=x", "--client is for a folder"},
		{"explain 127.0.0.1:1 xds:///a /a.B/C", "cannot reach 127.0.0.1:1"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			words := csv.NewReader(strings.NewReader(strings.ReplaceAll(test.args, "'", `"`)))
			words.Comma = ' '
			args, err := words.Read()
			xdstest.NoError(t, err)
			want := exit.Usage
			for part, status := range statuses {
				if strings.Contains(test.args+"\x00", part) {
					want = status
				}
			}
			stdout, stderr, status := run(t, args...)
			if status != want || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("exit status %d with %q and %q, want %d with %q", status, stdout, stderr, want, test.want)
			}
			if _, err := os.Stat("dir"); !os.IsNotExist(err) {
				t.Errorf("rejected arguments made the folder: %v", err)
			}
		})
	}
}
