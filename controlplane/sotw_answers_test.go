package controlplane_test

import (
	"slices"
	"testing"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// Envoy, "ACK/NACK and resource type instance version": a request for an older
// response than the last is ignored, with all that is in it.
func TestSotW_StaleNonceIsIgnored(t *testing.T) {
	s, c := startSotW(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	old := c.want(rds, "a")
	s.set(t, xdsmsg.RouteConfig("a", "changed"))
	current := c.want(rds, "a")

	c.nack(old, "", "too late", "a", "b")
	ts := c.typeStatus(s.control, rds)
	if ts.Reply != controlplane.ReplyAwaited || ts.NACK != nil || !slices.Equal(ts.Names, []string{"a"}) {
		t.Errorf("after a stale NACK: %+v", ts)
	}
	c.ack(current, "a", "b")
	c.want(rds, "b")
}

// A client may ask for more before the first response has reached it.
func TestSotW_RequestsBeforeFirstResponse(t *testing.T) {
	_, c := startSotW(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	c.subscribe(rds, "a", "b")
	var got []string
	for len(got) < 2 {
		got = append(got, namesIn(t, c.recv())...)
	}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q", got)
	}
	c.fence()
}

// Envoy, "ACK" and "NACK".
func TestSotW_ACKAndNACKAreToldApart(t *testing.T) {
	s, c := startSotW(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	v1 := c.want(rds, "a")
	if ts := c.typeStatus(s.control, rds); ts.Reply != controlplane.ReplyAwaited || ts.SentNonce != v1.GetNonce() {
		t.Errorf("before the answer: %+v", ts)
	}

	c.ack(v1, "a")
	if ts := c.typeStatus(s.control, rds); ts.Reply != controlplane.ReplyACK || ts.ACKedVersion != v1.GetVersionInfo() || ts.NACK != nil {
		t.Errorf("after the ACK: %+v", ts)
	}

	s.set(t, xdsmsg.RouteConfig("a", "bad"))
	v2 := c.want(rds, "a")
	c.nack(v2, v1.GetVersionInfo(), "bad domain", "a")
	check := func(when string) {
		t.Helper()
		ts := c.typeStatus(s.control, rds)
		if ts.Reply != controlplane.ReplyNACK || ts.ACKedVersion != v1.GetVersionInfo() || ts.SentVersion != v2.GetVersionInfo() {
			t.Errorf("%s: %+v", when, ts)
		}
		if ts.NACK == nil || ts.NACK.Err.Message() != "bad domain" || ts.NACK.Err.Code() != codes.InvalidArgument || ts.NACK.Version != v2.GetVersionInfo() || ts.NACK.Nonce != v2.GetNonce() {
			t.Errorf("%s: NACK is %+v", when, ts.NACK)
		}
	}
	check("after the NACK")

	// A change of subscription repeats the nonce, and accepts nothing.
	c.send(&discoverypb.DiscoveryRequest{
		TypeUrl: rds, ResourceNames: []string{"a", "missing"},
		VersionInfo: v1.GetVersionInfo(), ResponseNonce: v2.GetNonce(),
	})
	check("after a change of subscription")

	c.ack(v2, "a")
	check("after a request that has the NACKed version and no error")

	s.set(t, xdsmsg.RouteConfig("a", "good"))
	v3 := c.want(rds, "a")
	c.ack(v3, "a")
	if ts := c.typeStatus(s.control, rds); ts.Reply != controlplane.ReplyACK || ts.ACKedVersion != v3.GetVersionInfo() || ts.NACK == nil {
		t.Errorf("after the next ACK: %+v", ts)
	}
}

func TestSotW_NothingIsResentAfterNACKUntilSomethingChanges(t *testing.T) {
	s, c := startSotW(t, cluster("c1"), cluster("c2"))
	c.subscribe(cds, "c1")
	bad := c.want(cds, "c1")
	for range 3 {
		c.nack(bad, "", "no", "c1")
	}
	c.fence()
	s.set(t, cluster("c1")) // the same bytes
	c.fence()
	c.nack(bad, "", "no", "c1", "c2")
	c.nack(c.want(cds, "c1", "c2"), "", "no", "c1", "c2")
	c.fence()
	s.set(t, changed("c1", "new"))
	c.want(cds, "c1", "c2")
}

// Envoy, "ACK/NACK and resource type instance version": a nonce belongs to its
// stream, and the version of a reconnecting client is no reason for silence.
func TestSotW_ReconnectingClientGetsItsSubscriptions(t *testing.T) {
	t.Parallel()
	for _, typeURL := range []string{rds, cds} {
		t.Run(typeURL, func(t *testing.T) {
			s, c := startSotW(t, cluster("x"), xdsmsg.RouteConfig("x", "*"))
			c.subscribe(typeURL, "x")
			before := c.want(typeURL, "x")
			c.ack(before, "x")
			c.cancel()

			c = s.open(t)
			c.ack(before, "x") // version and even nonce of the stream before
			again := c.want(typeURL, "x")
			if again.GetVersionInfo() != before.GetVersionInfo() {
				t.Errorf("version %q became %q without a change", before.GetVersionInfo(), again.GetVersionInfo())
			}
			if ts := c.typeStatus(s.control, typeURL); ts.Reply != controlplane.ReplyAwaited {
				t.Errorf("the nonce of another stream counted: %+v", ts)
			}
		})
	}
}
