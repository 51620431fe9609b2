package relay_test

import (
	"testing"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// A client that is served from the cache alone says that its relay does not reach the control plane, and not so any more when that is over;
// behind two relays, too.
func TestStatusOfAClientBehindARelay(t *testing.T) {
	t.Parallel()
	for _, features := range [][]string{nil, {"delta"}, {"dynamic_parameter_constraints"}, {"delta", "dynamic_parameter_constraints"}} {
		r := newRig(t, func(o *relay.Options) { o.AwayDelay = -1 }, features...)
		r.up.Set(t, xdsmsg.RouteConfig("routes", "*"))
		of := func(node, server string) *bootstrap.Config {
			cfg, err := bootstrap.Parse("test", testutils.Bootstrap(node, server, testutils.ServerFeatures(features...)))
			xdstest.NoError(t, err)
			return cfg
		}
		second, err := relay.New(relay.Options{Bootstrap: of("second", r.addr), AwayDelay: -1})
		xdstest.NoError(t, err)
		for _, addr := range []string{r.addr, r.serve(second)} {
			client, err := xdsclient.New(of("client", addr), xdsclient.Options{})
			xdstest.NoError(t, err)
			heard := make(events, 10)
			client.Watch(xdsresource.RouteConfigurationType, "routes", heard)
			isBehind := func() bool {
				return !livestate.Take(t.Context(), livestate.OfClient(client.Dump())).Servers[0].BehindSince.IsZero()
			}
			heard.want(t, "resource")
			if isBehind() {
				t.Errorf("%v: the client says too early that the relay is alone", features)
			}
			r.up.Stop()
			heard.want(t, "error beside it")
			if !isBehind() {
				t.Errorf("%v: the client does not say that the relay is alone", features)
			}
			xdstest.NoError(t, r.up.Restart())
			heard.want(t, "resource") // again: the error is over
			if isBehind() {
				t.Errorf("%v: the client still says that the relay is alone", features)
			}
			client.Close()
		}
	}
}

// events are what a watcher hears.
type events chan string

func (e events) ResourceChanged(_ any, _ error, done func()) {
	e <- "resource"
	done()
}

func (e events) AmbientError(_ error, done func()) {
	e <- "error beside it"
	done()
}

func (e events) want(t *testing.T, event string) {
	t.Helper()
	select {
	case got := <-e:
		if got != event {
			t.Fatalf("heard %q, want %q", got, event)
		}
	case <-testutils.Context(t).Done():
		t.Fatalf("the watcher does not hear of the %s", event)
	}
}
