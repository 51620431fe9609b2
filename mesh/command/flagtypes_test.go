package command

import (
	"strings"
	"testing"
)

// A flag whose value is empty, from a shell variable that is not set, is an error and not a server
// in plaintext, a bootstrap without TLS or a relay that serves everything to everybody.
func TestFlagsThatMayNotBeEmpty(t *testing.T) {
	t.Parallel()
	const file = "the path of a file"
	for command, flags := range map[string]map[string]string{
		"serve " + exampleMesh: {"tls-cert": file, "tls-key": file, "client-ca": file, "store-ca": file, "store-cert": file,
			"store-key": file, "store-password-file": file},
		"relay --bootstrap b.json": {"tls-cert": file, "tls-key": file, "client-ca": file, "access": file},
		"bootstrap --server xds.example.com": {"ca": file, "cert": file, "key": file, "mesh-ca": file, "mesh-cert": file, "mesh-key": file, "token-file": file, "file": file,
			"dns-fallback": "never, not_found, timeout or unavailable"},
	} {
		for flag, want := range flags {
			args := append(strings.Fields(command), "--"+flag+"=")
			_, stderr, exit := run(t, args...)
			if want = `invalid argument "" for "--` + flag + `" flag: want ` + want; exit != 2 || !strings.Contains(stderr, want) {
				t.Errorf("%q: exit status %d, want 2: %s\nwant %s", args, exit, stderr, want)
			}
		}
	}
}
