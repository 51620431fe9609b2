package bootstrap_test

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Another node is another client: nothing else differs, but the fingerprint does.
func TestWithNode(t *testing.T) {
	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("a", "127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	other := cfg.WithNode(&corev3.Node{Id: "b"})
	if cfg.Node.GetId() != "a" || other.Node.GetId() != "b" || other.Servers[0] != cfg.Servers[0] {
		t.Errorf("got nodes %q and %q", cfg.Node.GetId(), other.Node.GetId())
	}
	if other.Fingerprint() == cfg.Fingerprint() {
		t.Error("the fingerprint is that of the other node")
	}
	if again := other.WithNode(cfg.Node); again.Fingerprint() != cfg.Fingerprint() {
		t.Error("the fingerprint differs with the same node")
	}
}
