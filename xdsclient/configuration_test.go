package xdsclient

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A watch that can never be served says so, and does no harm to others. See also transcripts/refused watches.txt.
func TestRefusedWatches(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.endpoints, "e")
		for reason, tc := range map[string]struct {
			typ  *ResourceType
			name string
		}{
			"not valid UTF-8":             {types.clusters, "\xff"},
			`"*" asks for every resource`: {types.clusters, "*"},
			"two different ResourceTypes": {newTestTypes().endpoints, "e"},
		} {
			e, _ := listen(t, c, tc.typ, tc.name)
			if err := e.fault(KindConfiguration); !strings.Contains(err.Error(), reason) || err.Code != codes.Unavailable || err.Resource != tc.name {
				t.Errorf("got %v, want %q in it", err, reason)
			}
		}
		s := server.asked()
		s.quiet()
	})
}

func TestNewRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	cfg := parseBootstrap(t, "dns:///localhost:1")
	for name, tc := range map[string]struct {
		opts []Option
		want []string
	}{
		"backoff":  {[]Option{WithBackoff(backoff.Config{})}, []string{"WithBackoff"}},
		"timeout":  {[]Option{WithResourceTimeout(-1)}, []string{"WithResourceTimeout"}},
		"all told": {[]Option{WithBackoff(backoff.Config{}), WithResourceTimeout(0)}, []string{"WithBackoff", "WithResourceTimeout"}},
	} {
		_, err := New(cfg, tc.opts...)
		if err == nil || slices.ContainsFunc(tc.want, func(s string) bool { return !strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: got error %v, want one with %q", name, err, tc.want)
		}
	}
	if _, err := New(nil); err == nil {
		t.Error("New took no bootstrap")
	}
}

// A connection that cannot even be tried is reported as an unreachable server.
func TestCredentialsThatCannotBeMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c := server.client(testutils.TopLevel("xds_servers", []map[string]any{{
			"server_uri": "passthrough:///script",
			"channel_creds": []map[string]any{{"type": "tls", "config": map[string]any{
				"ca_certificate_file": "/does/not/exist.pem",
			}}},
		}}))
		a, _ := listen(t, c, types.clusters, "a")
		server.open()
		if err := a.fault(KindUnreachable); !strings.Contains(err.Error(), "exist.pem") {
			t.Errorf("got %v, want the file in it", err)
		}
	})
}

// A server that is back after a long time is noticed within 36 s.
func TestDefaultBackoff(t *testing.T) {
	t.Parallel()
	o, err := newOptions(nil)
	xdstest.NoError(t, err)
	if wait := retries.After(100, o.backoff); wait < 24*time.Second || wait > 36*time.Second {
		t.Errorf("after 100 failures the client waits %v, want 30 s ± 20 %%", wait)
	}
}
