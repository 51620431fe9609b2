package xdsclient

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// Nor can these; see also transcripts/refused watches.txt.
func TestRefusedWatches(t *testing.T) {
	(&transcriptTest{over: "SotW", steps: "watch e:e -> stream; e.req e", then: func(x *transcript) {
		x.run("watch a=\xff -> a: configuration")
		x.types.endpoints = newTestTypes().endpoints
		x.run("watch b=e:e -> b: configuration")
		for label, reason := range map[string]string{"a": "not valid UTF-8", "b": "two different ResourceTypes"} {
			if text := x.ask("text " + label); !strings.Contains(text[0], reason) {
				t.Errorf("got %s, want %q in it", text, reason)
			}
		}
		x.types.clusters.TypeURL = "\xff"
		x.run("watch c -> closed; c: unreachable; e:e: unreachable")
		if text := x.ask("text c"); !strings.Contains(text[0], "cannot make a request") {
			t.Errorf("got %s, want that the request cannot be made", text)
		}
	}}).run(t)
}

func TestNewRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	cfg := parseBootstrap(t, "dns:///localhost:1")
	for name, tc := range map[string]struct {
		opts Options
		want []string
	}{
		"backoff":  {Options{Backoff: backoff.Config{MaxDelay: 1}}, []string{"Backoff"}},
		"timeout":  {Options{ResourceTimeout: -1}, []string{"ResourceTimeout"}},
		"all told": {Options{Backoff: backoff.Config{MaxDelay: 1}, ResourceTimeout: -1}, []string{"Backoff", "ResourceTimeout"}},
	} {
		_, err := New(cfg, tc.opts)
		if err == nil || slices.ContainsFunc(tc.want, func(s string) bool { return !strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: got error %v, want one with %q", name, err, tc.want)
		}
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("New took no bootstrap")
	}
}

// A connection that cannot even be tried is reported as an unreachable server.
func TestCredentialsThatCannotBeMade(t *testing.T) {
	(&transcriptTest{over: "SotW", authorities: []testutils.BootstrapOption{testutils.TopLevel("xds_servers", []map[string]any{{
		"server_uri": uri(0),
		"channel_creds": []map[string]any{{"type": "tls", "config": map[string]any{
			"ca_certificate_file": "/does/not/exist.pem",
		}}},
	}})}, steps: "watch a -> a: unreachable", then: func(x *transcript) {
		if text := x.ask("text a"); !strings.Contains(text[0], "exist.pem") {
			t.Errorf("got %s, want the file in it", text)
		}
	}}).run(t)
}

// A server that is back after a long time is noticed within 36 s.
func TestDefaultBackoff(t *testing.T) {
	t.Parallel()
	var o Options
	xdstest.NoError(t, o.complete())
	if wait := retries.After(100, o.Backoff); wait < 24*time.Second || wait > 36*time.Second {
		t.Errorf("after 100 failures the client waits %v, want 30 s ± 20 %%", wait)
	}
}
