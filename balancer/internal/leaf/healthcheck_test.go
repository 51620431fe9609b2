package leaf_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
)

// checked is a leaf over the addresses "a:1" and "b:1", whose servers have health services.
type checked struct {
	*lbtest.Fixture[*leaf.Policy]
	a, b lbtest.HealthServer
}

func (c *checked) configure(check *xdsresource.HealthCheck) {
	all := []xdsresource.Endpoint{{Address: "a:1", Weight: 1}, {Address: "b:1", Weight: 1}}
	c.Update(func() {
		c.Env.Endpoints.Update(conns.Config{Localities: []xdsresource.Locality{{Endpoints: all}}, HealthCheck: check})
		c.Policy.Update(all, "")
	})
}

func newChecked(t *testing.T, policy string, check *xdsresource.HealthCheck) *checked {
	c := new(checked)
	c.Fixture = lbtest.NewFixture(t, func(env *tree.Env, changed func()) *leaf.Policy {
		return leaf.New(env, policy, leaf.ForLocality, changed)
	})
	c.CC.Server = func(addr string) grpc.ClientConnInterface {
		if addr == "a:1" {
			return &c.a
		}
		return &c.b
	}
	c.configure(check)
	return c
}

// expect expects what picks yield: addresses, "CONNECTING", or "unhealthy" if the error says so.
func (c *checked) expect(t *testing.T, when, want string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for range 8 {
		address, err := c.CC.Pick(t.Context())
		switch {
		case err == nil:
		case strings.Contains(err.Error(), lbtest.Waits):
			address = c.CC.State().ConnectivityState.String()
		case strings.Contains(err.Error(), "its health check"):
			address = "unhealthy"
		default:
			address = err.Error()
		}
		got = append(got, address)
	}
	slices.Sort(got)
	if text := strings.Join(slices.Compact(got), " "); text != want {
		t.Errorf("%s: picked %q, want %q", when, text, want)
	}
}

func inABubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// TestHealthCheck: gRFC A17, "Client Workflow".
func TestHealthCheck(t *testing.T) {
	asks := &xdsresource.HealthCheck{Service: "shop"}
	inABubble(t, "the first answer is waited for, and each later one counts", func(t *testing.T) {
		c := newChecked(t, "round_robin", asks)
		c.expect(t, "before any answer", "CONNECTING")
		c.a.Answer(serving)
		c.expect(t, "a serves", "a:1")
		xdstest.Equal(t, "services asked for", []string{"shop"}, c.a.Open())
		c.b.Answer(serving)
		c.expect(t, "both serve", "a:1 b:1")
		c.a.Answer(notServing)
		c.expect(t, "a does not", "b:1")
		got := inspect.Endpoint{Addresses: []string{"a:1"}}
		if c.Env.Endpoints.Describe(&got); got.HealthCheck != "NOT_SERVING" || got.State != inspect.Ready {
			t.Errorf("diagnostics: %+v", got)
		}
		c.b.Answer(healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
		c.expect(t, "none does", "unhealthy")
		c.a.Answer(serving)
		c.expect(t, "a does again", "a:1")
	})
	inABubble(t, `UNIMPLEMENTED: "it will treat the channel as healthy", and "will not retry"`, func(t *testing.T) {
		c := newChecked(t, "round_robin", asks)
		c.a.Answer(status.Error(codes.Unimplemented, "no such service"))
		c.b.Answer(notServing)
		c.expect(t, "a cannot say", "a:1")
		time.Sleep(time.Hour)
		xdstest.Equal(t, "streams", 1, len(c.a.Began()))
	})
	inABubble(t, `any other status: TRANSIENT_FAILURE, "exponential backoff between attempts"`, func(t *testing.T) {
		c := newChecked(t, "round_robin", asks)
		c.b.Answer(notServing)
		c.a.Answer(status.Error(codes.Unavailable, "not now"))
		c.expect(t, "the first stream fails", "unhealthy")
		for range 4 {
			for n := len(c.a.Began()); len(c.a.Began()) == n; {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			c.a.Answer(status.Error(codes.Unavailable, "not now"))
		}
		began := c.a.Began()
		for i, want := 1, time.Second; i < len(began); i, want = i+1, want*16/10 {
			if pause := began[i].Sub(began[i-1]); pause < want*7/10 || pause > want*13/10 {
				t.Errorf("pause %d is %v, want about %v", i, pause, want)
			}
		}
	})
	inABubble(t, `"When the client receives a message, the next attempt will occur immediately"`, func(t *testing.T) {
		c := newChecked(t, "round_robin", asks)
		c.b.Answer(notServing)
		c.a.Answer(serving)
		time.Sleep(time.Minute)
		c.a.Answer(errors.New("broken"))
		c.expect(t, "the stream is opened again", "CONNECTING")
		if began := c.a.Began(); len(began) != 2 || began[1].Sub(began[0]) != time.Minute {
			t.Errorf("streams at %v", began)
		}
		c.a.Answer(serving)
		c.expect(t, "it serves", "a:1")
		for range 5 { // A server cannot keep the client busy so.
			c.a.Answer(serving, errors.New("broken"))
		}
		if n := len(c.a.Began()); n > 3 {
			t.Errorf("%d streams at once", n)
		}
	})
	inABubble(t, `"When the client subchannel is shutting down, the client will cancel the Watch() call"`, func(t *testing.T) {
		c := newChecked(t, "round_robin", asks)
		c.a.Answer(serving)
		c.Network.Set("a:1", lbtest.Refused)
		synctest.Wait()
		xdstest.Equal(t, "open streams of a lost connection", nil, c.a.Open())
		c.Loop.Do(c.Policy.Close)
		synctest.Wait()
		xdstest.Equal(t, "open streams of a closed policy", nil, c.b.Open())
	})
	inABubble(t, `"We do not plan to support health checking with pick_first"`, func(t *testing.T) {
		c := newChecked(t, "pick_first", asks)
		c.expect(t, "connected", "a:1")
		xdstest.Equal(t, "streams", 0, len(c.a.Began()))
	})
	inABubble(t, "no health check is configured, then one is, then another, then none", func(t *testing.T) {
		c := newChecked(t, "round_robin", nil)
		c.expect(t, "without", "a:1 b:1")
		c.configure(asks)
		c.expect(t, "the health is what it was until the first answer", "a:1 b:1")
		c.a.Answer(notServing)
		c.b.Answer(serving)
		c.expect(t, "with", "b:1")
		c.configure(&xdsresource.HealthCheck{Service: "other"})
		c.expect(t, "another service, without an answer", "b:1")
		c.a.Answer(serving)
		c.expect(t, "another service", "a:1 b:1")
		c.b.Answer(notServing)
		c.configure(&xdsresource.HealthCheck{Service: "other"})
		xdstest.Equal(t, "streams to a", 2, len(c.a.Began()))
		xdstest.Equal(t, "open streams to a", []string{"other"}, c.a.Open())
		c.expect(t, "the same configuration", "a:1")
		c.configure(nil)
		c.expect(t, "without again", "a:1 b:1")
		xdstest.Equal(t, "open streams", nil, append(c.a.Open(), c.b.Open()...))
	})
}

// A connection that is made while the health check changes has one check, the latest.
func TestHealthCheckChangesWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, "round_robin", nil)
		for i := range 500 {
			c.Network.Set("a:1", lbtest.Silent)
			synctest.Wait()
			service := fmt.Sprint(i)
			c.Network.Set("a:1", lbtest.Up)
			c.configure(&xdsresource.HealthCheck{Service: service})
			synctest.Wait()
			if got := c.a.Open(); !slices.Equal(got, []string{service}) {
				t.Fatalf("round %d: open streams ask for %q", i, got)
			}
		}
	})
}
