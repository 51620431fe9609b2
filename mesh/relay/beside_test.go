package relay_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

const routesType = typeurl.RouteConfiguration

// While the control plane is away, clients get their routes, and beside these the error that says so, new clients too; when it is back they
// get the routes again. They get nothing beside other types.
func TestClientsHearThatTheControlPlaneIsAway(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, func(o *relay.Options) { o.AwayDelay = -1 }, features...)
		r.up.Set(t, xdsmsg.RouteConfig("routes", "*"), xdsmsg.EDSCluster("c", ""))
		alone := func(d *deltaStream) {
			t.Helper()
			if detail := wantError(d, "routes", codes.Unavailable); !dialect.SaysUnreachable(detail) {
				t.Errorf("got the error %v, want that the control plane is unreachable", detail)
			}
		}
		early, cluster, s := r.delta(), r.subscriber("c", "c"), r.sotw()
		subscribe(early, node("a"), routesType, "routes")
		first := wantOnly(early, "routes")
		s.send(&discoverypb.DiscoveryRequest{Node: node("s"), TypeUrl: routesType, ResourceNames: []string{"routes"}})
		response := s.receive()
		acknowledge := func() {
			s.send(&discoverypb.DiscoveryRequest{TypeUrl: routesType, ResourceNames: []string{"routes"}, VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce()})
		}
		acknowledge()
		r.up.Stop()
		alone(early)
		response = s.receive()
		if errs := response.GetResourceErrors(); len(response.GetResources()) > 0 || len(errs) != 1 || !dialect.SaysUnreachable(errs[0].GetErrorDetail()) {
			t.Errorf("over SotW got %v, want an error alone", response)
		}
		acknowledge()
		late := r.delta()
		subscribe(late, node("b"), routesType, "routes")
		if got := wantOnly(late, "routes"); got.GetVersion() != first.GetVersion() {
			t.Errorf("a new client gets version %q, want %q", got.GetVersion(), first.GetVersion())
		}
		alone(late)
		xdstest.NoError(t, r.up.Restart())
		for _, d := range []*deltaStream{early, late} {
			if got := wantOnly(d, "routes"); got.GetVersion() != first.GetVersion() {
				t.Errorf("got version %q again, want %q", got.GetVersion(), first.GetVersion())
			}
		}
		if got := s.receive(); len(got.GetResources()) != 1 || len(got.GetResourceErrors()) > 0 {
			t.Errorf("over SotW got %v, want the routes again", got)
		}
		r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
		wantOnly(cluster, "c")
	})
}

// That the control plane is away for a short time is told to nobody.
func TestAShortAbsenceIsNotTold(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, func(o *relay.Options) { o.AwayDelay = time.Hour }, features...)
		r.up.Set(t, xdsmsg.RouteConfig("routes", "*"))
		d := r.delta()
		subscribe(d, node("a"), routesType, "routes")
		wantOnly(d, "routes")
		r.up.Stop()
		r.awaitUnreachable()
		xdstest.NoError(t, r.up.Restart())
		r.up.Set(t, xdsmsg.RouteConfig("routes", "changed"))
		wantOnly(d, "routes")
	})
}

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
			client, err := xdsclient.New(of("client", addr))
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
