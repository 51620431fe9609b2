package webpage

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without a host the page is on loopback; others can open it only where the address says so.
func TestServe(t *testing.T) {
	for address, want := range map[string]struct {
		prefix string
		open   bool
	}{
		DefaultAddress: {"http://127.0.0.1:", false},
		":0":           {"http://127.0.0.1:", false},
		"localhost:0":  {"http://localhost:", false},
		"0.0.0.0:0":    {"http://", true},
	} {
		p, err := Serve(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if !strings.HasPrefix(p.URL, want.prefix) || !strings.HasSuffix(p.URL, "/") || p.Open != want.open {
			t.Errorf("%s: %s, open to others: %v; want %s… and %v", address, p.URL, p.Open, want.prefix, want.open)
		}
		if body := cmdtest.Get(t, p.URL); !strings.Contains(body, "xDS status") {
			t.Errorf("%s: GET %s: got no status page: %s", address, p.URL, body)
		}
		p.Close()
	}
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	p, err := Serve(DefaultAddress)
	xdstest.NoError(t, err)
	defer p.Close()
	taken := strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/")
	for address, want := range map[string]string{"8080": "HOST:PORT", "": "HOST:PORT", "localhost:x": "--page", taken: "in use"} {
		p, err := Serve(address)
		if err == nil {
			p.Close()
			t.Errorf("%q is accepted", address)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
}
