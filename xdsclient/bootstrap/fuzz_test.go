package bootstrap

import (
	"errors"
	"os"
	"testing"
	"unicode/utf8"

	"github.com/dynxds/dynxds/internal/xdsname"
)

// FuzzParse checks for any input that Parse does not panic, that its error is a
// report with at least one error, and that what it accepts can be used.
func FuzzParse(f *testing.F) {
	for _, s := range sectionsOf(f) {
		f.Add([]byte(s.text()))
	}
	f.Add([]byte(`[[[{"a`))
	if doc, err := os.ReadFile(docPath); err == nil {
		for _, block := range blocks(string(doc), "json") {
			f.Add([]byte(block))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("", data)
		if err != nil {
			var faults *Faults
			if !errors.As(err, &faults) || len(faults.List) == 0 || !utf8.ValidString(err.Error()) {
				t.Fatalf("the error is no readable report: %q", err)
			}
			if c != nil {
				t.Fatal("there is a Config beside the error")
			}
			return
		}
		checkUsable(t, c)
		again, err := Parse("again", data)
		if err != nil || again.Fingerprint() != c.Fingerprint() {
			t.Fatalf("parsing again gave %v or another fingerprint", err)
		}
	})
}

// checkUsable checks what Config promises.
func checkUsable(t *testing.T, c *Config) {
	t.Helper()
	all := [][]*Server{c.Servers}
	for name, a := range c.Authorities {
		all = append(all, a.Servers)
		got, err := c.ListenerName(name, "endpoint")
		if name != "" && (err != nil || !xdsname.HasAuthority(got, name)) {
			t.Errorf("authority %q gives the name %q, %v", name, got, err)
		}
		if in, isNew := xdsname.Authority(a.ClientListenerTemplate); !isNew || in != name {
			t.Errorf("the template %q is not one of authority %q", a.ClientListenerTemplate, name)
		}
	}
	for _, servers := range all {
		if len(servers) == 0 {
			t.Error("there is an empty list of servers")
		}
		for _, s := range servers {
			if s.URI == "" || s.Key() == "" {
				t.Errorf("server %+v lacks a URI or a key", s)
			}
			_, release, err := s.DialOptions()
			if err == nil {
				release()
			} else if len(s.call) == 0 && (s.CredentialsType == "tls" || s.CredentialsType == "insecure") {
				t.Errorf("credentials cannot be built: %v", err)
			}
		}
	}
}
