package dpdswrapper_test

import (
	"os"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// The bootstrap of the manual has the effect that the manual describes.
func TestManual(t *testing.T) {
	t.Parallel()
	manual := string(must(os.ReadFile("../docs/tasks/dynamic-parameters.md")))
	_, rest, _ := strings.Cut(manual, "```json\n")
	document, _, _ := strings.Cut(rest, "```")
	cfg := must(bootstrap.Parse("manual", []byte(document)))
	f := newFixtureOver(newFakeClient(t, cfg))
	listener := must(cfg.ListenerName("", "echo"))
	f.Watch(xdsresource.ListenerType, listener, new(above))
	f.expect("+DPDS checkout")
	f.dpds("checkout", only(listenerType, "listener_type", "direct"))
	f.expect("[", "+Listener "+name("xds.example.com", listenerType, "echo")+" {env=prod, listener_type=direct}", "]")

	// And the one with DPDS of another authority.
	_, rest, _ = strings.Cut(rest, "```json\n")
	document, _, _ = strings.Cut(rest, "```")
	must(bootstrap.Parse("manual", []byte(document)))
}
