package bootstrap_test

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Another node is another client: nothing else differs, but the fingerprint does.
func TestWithNode(t *testing.T) {
	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("a", "127.0.0.1:1"))
	xdstest.NoError(t, err)
	other := cfg.WithNode(&corev3.Node{Id: "b"})
	if cfg.Node.GetId() != "a" || other.Node.GetId() != "b" || other.Servers[0] != cfg.Servers[0] {
		t.Errorf("got nodes %q and %q", cfg.Node.GetId(), other.Node.GetId())
	}
	if other.Fingerprint() == cfg.Fingerprint() {
		t.Error("the fingerprint is that of the other node")
	}
	cached := mustParseCache(t)
	if without := *cached; cached.Fingerprint() == cfg.Fingerprint() {
		t.Error("the fingerprint is that of a client without a resource cache")
	} else if without.ResourceCache.Directory = ""; without.WithNode(cfg.Node).Fingerprint() != cfg.Fingerprint() {
		t.Error("without its resource cache the fingerprint differs")
	}
	if again := other.WithNode(cfg.Node); again.Fingerprint() != cfg.Fingerprint() {
		t.Error("the fingerprint differs with the same node")
	}
}

func mustParseCache(t *testing.T) *bootstrap.Config {
	t.Helper()
	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("a", "127.0.0.1:1", testutils.TopLevel("resource_cache", map[string]any{"directory": "d"})))
	if err != nil || cfg.ResourceCache.MaxAge != 24*time.Hour {
		t.Fatal(cfg, err)
	}
	return cfg
}
