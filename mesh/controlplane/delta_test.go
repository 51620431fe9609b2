package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// Envoy, "Incremental xDS": names are added to and taken from what is
// subscribed; a request without names changes nothing.
func TestDelta_SubscriptionsAreDifferences(t *testing.T) {
	s, c := startDelta(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"), xdsmsg.RouteConfig("c", "*"))
	c.subscribe(rds, "a", "a")
	c.ack(c.want(rds, "a"))
	c.subscribe(rds, "b")
	c.ack(c.want(rds, "b"))
	c.subscribe(rds)
	c.fence()
	s.set(t, xdsmsg.RouteConfig("a", "1"), xdsmsg.RouteConfig("b", "1"), xdsmsg.RouteConfig("c", "1"))
	c.want(rds, "a", "b")
	c.unsubscribe(rds, "a")
	c.fence()
	s.set(t, xdsmsg.RouteConfig("a", "2"), xdsmsg.RouteConfig("b", "2"))
	c.want(rds, "b")
}

// Envoy, "Incremental xDS": subscriptions, and the resources in a response, in
// one message.
func TestDelta_OneRequestSubscribesAndUnsubscribes(t *testing.T) {
	s, c := startDelta(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	first := c.want(rds, "a")
	c.request(request{typeURL: rds, answers: first, names: []string{"b"}, unsubscribe: []string{"a"}})
	c.want(rds, "b")
	s.set(t, xdsmsg.RouteConfig("a", "1"))
	c.fence()
	// In both lists: subscribed.
	c.request(request{typeURL: rds, names: []string{"a", "b"}, unsubscribe: []string{"a", "b"}})
	c.want(rds, "a", "b")
}

// Envoy, "Grouping Resources into Responses" and "Incremental xDS".
func TestDelta_OnlyWhatChangedIsSent(t *testing.T) {
	s, c := startDelta(t, cluster("a"), cluster("b"), cluster("c"))
	c.subscribe(cds)
	c.ack(c.want(cds, "a", "b", "c"))
	s.set(t, cluster("a"), changed("b", "new"), cluster("c"))
	c.ack(c.want(cds, "b"))
	s.set(t, cluster("a"), changed("b", "new"))
	s.set(t, xdsmsg.RouteConfig("r", "*"))
	c.fence()
}

// Envoy, "Deleting Resources".
func TestDelta_DeletedResourceIsNamedAsRemoved(t *testing.T) {
	t.Parallel()
	for _, typeURL := range []string{rds, cds} {
		t.Run(typeURL, func(t *testing.T) {
			s, c := startDelta(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"), cluster("a"), cluster("b"))
			c.subscribe(typeURL, "a", "b")
			c.want(typeURL, "a", "b")
			s.delete(t, typeURL, "a", "b")
			c.want(typeURL, "-a", "-b")
			s.set(t, xdsmsg.RouteConfig("a", "*"), cluster("a"))
			c.want(typeURL, "a")
		})
	}
}

// Envoy, "Incremental xDS", "Knowing When a Requested Resource Does Not Exist".
func TestDelta_MissingResourceIsAnsweredAtOnce(t *testing.T) {
	s, c := startDelta(t, xdsmsg.RouteConfig("here", "*"))
	c.subscribe(rds, "here", "missing")
	c.want(rds, "here", "-missing")
	s.update(t, func(tx *controlplane.Tx) { tx.Delete(rds, "missing") })
	c.fence()
	s.set(t, xdsmsg.RouteConfig("missing", "*"))
	c.want(rds, "missing")
}

// Envoy, "Subscribing to Resources": what is asked for is sent, even if the
// server believes that the client has it.
func TestDelta_RepeatedSubscriptionIsAnsweredAgain(t *testing.T) {
	_, c := startDelta(t, cluster("a"), cluster("b"))
	c.subscribe(cds, "a", "missing")
	c.ack(c.want(cds, "a", "-missing"))
	c.subscribe(cds, "a", "missing")
	c.ack(c.want(cds, "a", "-missing"))
	c.subscribe(cds, "*")
	c.ack(c.want(cds, "a", "b"))
	c.subscribe(cds, "*")
	c.ack(c.want(cds, "a", "b"))
	c.subscribe(cds, "b")
	c.ack(c.want(cds, "b"))
	c.subscribe(cds, "b", "*")
	c.want(cds, "a", "b")
	c.fence()
}

// Envoy, "Unsubscribing from Resources".
func TestDelta_Unsubscribe(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, names ...string) (*testServer, *client) {
		s := startServer(t)
		s.set(t, cluster("a"), cluster("b"))
		c := s.openDelta(t)
		c.subscribe(cds, names...)
		c.next()
		return s, c
	}
	t.Run("needs no answer", func(t *testing.T) {
		t.Parallel()
		_, c := open(t, "a", "missing")
		c.unsubscribe(cds, "a", "missing")
		c.fence()
	})
	t.Run("of what is not subscribed is ignored", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, "a")
		c.unsubscribe(cds, "b", "never", "*")
		c.fence()
		s.set(t, changed("a", "new"), changed("b", "new"))
		c.want(cds, "a")
	})
	t.Run("a name that the wildcard covers: the resource is sent", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, "*", "a")
		c.unsubscribe(cds, "a")
		c.want(cds, "a")
		s.set(t, changed("a", "new"))
		c.want(cds, "a")
	})
	t.Run("a name that the wildcard does not cover: it is named as removed", func(t *testing.T) {
		t.Parallel()
		_, c := open(t, "*", "missing")
		c.unsubscribe(cds, "missing")
		c.want(cds, "-missing")
		c.fence()
	})
	t.Run("the wildcard as a whole", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, "*", "a")
		c.unsubscribe(cds, "*")
		c.fence()
		s.set(t, changed("a", "new"), changed("b", "new"))
		c.want(cds, "a")
	})
	t.Run("one resource of the wildcard is not possible", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, "*")
		c.unsubscribe(cds, "a")
		c.fence()
		s.set(t, changed("a", "new"))
		c.want(cds, "a")
	})
	t.Run("before the answer", func(t *testing.T) {
		_, c := startDelta(t, cluster("a"), cluster("b"))
		c.subscribe(cds, "a", "b")
		c.unsubscribe(cds, "a", "b")
		c.subscribe(cds, "a")
		for r := c.next(); !slices.Equal(r.content, []string{"a"}); r = c.next() {
			t.Logf("on the way before: %q", r.content)
		}
		c.fence()
	})
}

// Envoy, "Incremental xDS": the subscription of a request counts, stale or
// not.
func TestDelta_SubscriptionWithStaleNonceCounts(t *testing.T) {
	s, c := startDelta(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	old := c.want(rds, "a")
	s.set(t, xdsmsg.RouteConfig("a", "changed"))
	c.want(rds, "a")
	for _, nonce := range []string{old.nonce, old.nonce, "invented"} {
		c.request(request{typeURL: rds, answers: reply{nonce: nonce}, names: []string{"b"}})
		c.want(rds, "b")
	}
}

// Envoy, "Incremental xDS": the nonce pairs an ACK or NACK with its response.
func TestDelta_EachResponseIsAnsweredOnItsOwn(t *testing.T) {
	s, c := startDelta(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	first := c.want(rds, "a")
	c.subscribe(rds, "b")
	second := c.want(rds, "b")
	if ts := c.typeStatus(s.control, rds); ts.Reply != controlplane.ReplyAwaited || ts.SentNonce != second.nonce || ts.SentVersion != "1" {
		t.Errorf("before the answers: %+v", ts)
	}
	c.nack(first, "bad a")
	ts := c.typeStatus(s.control, rds)
	if ts.Reply != controlplane.ReplyAwaited || ts.ACKedVersion != "" {
		t.Errorf("after the NACK of the first: %+v", ts)
	}
	if ts.NACK == nil || ts.NACK.Nonce != first.nonce || ts.NACK.Version != "1" || ts.NACK.Err.Message() != "bad a" {
		t.Errorf("the NACK: %+v", ts.NACK)
	}
	c.ack(second)
	c.nack(second, "answered already")
	ts = c.typeStatus(s.control, rds)
	if ts.Reply != controlplane.ReplyACK || ts.ACKedVersion != second.version || ts.NACK.Nonce != first.nonce {
		t.Errorf("after the ACK of the second: %+v", ts)
	}
}

func TestDelta_NothingIsResentAfterNACKUntilSomethingChanges(t *testing.T) {
	s, c := startDelta(t, cluster("a"), cluster("b"))
	c.subscribe(cds)
	c.nack(c.want(cds, "a", "b"), "no")
	s.set(t, cluster("a"))
	c.fence()
	s.set(t, changed("a", "good"))
	c.want(cds, "a")
}

func TestDelta_LargeResponsesAreSplit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	s := startServer(t, controlplane.Options{MaxResponseSize: limit})
	big := strings.Repeat("x", 10<<10)
	want := map[string]bool{}
	var subscribe []string
	s.update(t, func(tx *controlplane.Tx) {
		for i := range 50 {
			name := fmt.Sprintf("r%d", i)
			tx.SetNamed(name, nil, wrapperspb.String(name+big))
			subscribe = append(subscribe, name)
			want[name] = true
		}
		tx.SetNamed("huge", nil, wrapperspb.String(strings.Repeat("x", 2*limit)))
		want["huge"] = true
		for i := range 20 {
			name := fmt.Sprintf("e%d", i)
			tx.SetError(custom, name, status.New(codes.Internal, big))
			subscribe = append(subscribe, name)
			want["!"+name+": Internal"] = true
		}
	})
	c := s.openDelta(t)
	subscribe = append(subscribe, "huge")
	for i := range 20 {
		name := fmt.Sprintf("missing-%d-%s", i, big)
		subscribe = append(subscribe, name)
		want["-"+name] = true
	}
	c.subscribe(custom, subscribe...)
	responses := 0
	for len(want) > 0 {
		r := c.next()
		responses++
		c.ack(r)
		if size := proto.Size(r.message); size > limit && len(r.content) > 1 {
			t.Errorf("a response of %d items has %d bytes, the limit is %d", len(r.content), size, limit)
		}
		for _, item := range r.content {
			if !want[item] {
				t.Fatalf("%.20q came twice or is not wanted", item)
			}
			delete(want, item)
		}
	}
	if responses < 16 || responses > 25 {
		t.Errorf("%d responses for about 1 MiB in parts of 64 KiB", responses)
	}
}

// Envoy, "Eventual consistency considerations".
func TestDelta_PushOrderIsMakeBeforeBreak(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.update(t, func(tx *controlplane.Tx) {
		tx.Set(cluster("old"), cluster("stays"), xdsmsg.SimpleEndpoints("old", "127.0.0.1:1"), xdsmsg.DefaultListener("l-old", "r"))
	})
	c := s.openDelta(t)
	c.subscribe(cds)
	c.want(cds, "old", "stays")
	for _, sub := range []struct{ typeURL, old, next string }{{eds, "old", "new"}, {lds, "l-old", "l"}, {rds, "r-old", "r"}} {
		c.subscribe(sub.typeURL, sub.old, sub.next)
		c.next()
	}
	c.subscribe(custom, "x")
	c.want(custom, "-x")

	s.update(t, func(tx *controlplane.Tx) {
		tx.SetNamed("x", nil, wrapperspb.String("x"))
		tx.Delete(cds, "old")
		tx.Delete(eds, "old")
		tx.Delete(lds, "l-old")
		tx.Set(cluster("new"), xdsmsg.SimpleEndpoints("new", "127.0.0.1:1"), xdsmsg.DefaultListener("l", "r"), xdsmsg.RouteConfig("r", "*"))
	})
	c.want(cds, "new")
	c.want(eds, "new")
	c.want(lds, "l", "-l-old")
	c.want(rds, "r")
	c.want(custom, "x")
	c.want(cds, "-old")
	c.want(eds, "-old")

	s.update(t, func(tx *controlplane.Tx) {
		tx.Delete(cds, "new")
		tx.Set(xdsmsg.RouteConfig("r", "other"))
	})
	c.want(rds, "r")
	c.want(cds, "-new")

	s.update(t, func(tx *controlplane.Tx) {
		tx.Delete(cds, "stays")
		tx.Set(cluster("next"))
	})
	c.want(cds, "next", "-stays")
	c.fence()
}

func TestDelta_CanBeRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.Options{NoDelta: true})
	s.set(t, cluster("c"))
	if err := s.openDelta(t).end(); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "StreamAggregatedResources") {
		t.Errorf("the stream ended with %v", err)
	}
	c := s.open(t)
	c.subscribe(cds)
	c.want(cds, "c")
	if got := s.control.Clients(); len(got) != 1 || got[0].Protocol != controlplane.ProtocolSotW {
		t.Errorf("clients: %+v", got)
	}
}

// Envoy, "How the client specifies what resources to return", the example for
// the incremental variant, request by request.
func TestDelta_LegacyWildcardLastsUntilItIsUnsubscribed(t *testing.T) {
	s, c := startDelta(t, cluster("A"), cluster("B"))

	c.subscribe(cds)
	c.ack(c.want(cds, "A", "B"))
	c.subscribe(cds, "A")
	c.ack(c.want(cds, "A"))
	s.set(t, changed("B", "1"))
	c.ack(c.want(cds, "B"))

	c.unsubscribe(cds, "*")
	c.fence()
	s.set(t, changed("A", "2"), changed("B", "2"))
	c.ack(c.want(cds, "A"))

	c.unsubscribe(cds, "A")
	c.subscribe(cds) // no wildcard any more
	c.fence()
	s.set(t, changed("A", "3"), changed("B", "3"))
	c.fence()
	c.subscribe(cds, "*")
	c.want(cds, "A", "B")
}

func TestDelta_LegacyWildcardEndsWithoutAName(t *testing.T) {
	s, c := startDelta(t, cluster("A"))
	c.subscribe(cds)
	resp := c.want(cds, "A")
	c.unsubscribe(cds, "*")
	c.ack(resp) // has no names, and does not bring the wildcard back
	c.fence()
	s.set(t, changed("A", "1"))
	c.fence()
}

func TestDelta_WildcardAndNameSendOneCopy(t *testing.T) {
	s, c := startDelta(t, cluster("a"), cluster("b"))
	c.subscribe(cds, "*", "a")
	c.want(cds, "a", "b")
	s.set(t, changed("a", "new"))
	c.want(cds, "a")
	s.delete(t, cds, "a")
	c.want(cds, "-a")
	c.fence()
}

// Envoy, "Incremental xDS": initial_resource_versions after a reconnect.
func TestDelta_Reconnect(t *testing.T) {
	t.Parallel()
	const (
		collection = "xdstp://auth/envoy.config.cluster.v3.Cluster/dir/"
		elsewhere  = "xdstp://auth/envoy.config.cluster.v3.Cluster/other/x"
	)
	tests := []struct {
		name      string
		subscribe []string
		prefix    string // of every name
		stray     string // what the client has, too, and does not subscribe to
		then      []string
	}{
		{"by name", []string{"same", "changed", "gone", "new"}, "", "stray", []string{"changed", "-gone", "new"}},
		{"legacy wildcard", nil, "", "", []string{"changed", "-gone", "new"}},
		{"star", []string{"*"}, "", "", []string{"changed", "-gone", "new"}},
		{"star and names", []string{"*", "same", "gone", "never"}, "", "", []string{"changed", "-gone", "new", "-never"}},
		{"only some", []string{"same", "gone"}, "", "stray", []string{"-gone"}},
		{"glob", []string{collection + "*"}, collection, elsewhere, []string{collection + "changed", "-" + collection + "gone", collection + "new"}},
		{"nothing to say", []string{"same"}, "", elsewhere, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, c := startDelta(t, cluster(tt.prefix+"same"), cluster(tt.prefix+"changed"), cluster(tt.prefix+"gone"))
			c.subscribe(cds, tt.prefix+"same", tt.prefix+"changed", tt.prefix+"gone")
			versions := c.next().versions
			if tt.stray != "" {
				versions[tt.stray] = "1"
			}
			c.cancel()

			s.set(t, changed(tt.prefix+"changed", "x"), cluster(tt.prefix+"new"))
			s.delete(t, cds, tt.prefix+"gone")
			c = s.openDelta(t)
			c.resume(cds, versions, tt.subscribe...)
			if tt.then != nil {
				c.ack(c.want(cds, tt.then...))
			}
			c.fence()
			s.set(t, changed(tt.prefix+"same", "x"))
			c.want(cds, tt.prefix+"same")
		})
	}
}

// A client that claims no members cannot know by a removal, which may be for a name, that its wildcard has none.
func TestDelta_WildcardWithoutMembersIsAnsweredApart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		versions map[string]string
		want     [][]string
	}{
		"nothing is claimed":  {nil, [][]string{{}, {"-gone"}}},
		"the name is claimed": {map[string]string{"gone": "1"}, [][]string{{}, {"-gone"}}},
		"members are claimed": {map[string]string{"gone": "1", "left": "1"}, [][]string{{"-gone", "-left"}}},
		"a member is claimed": {map[string]string{"left": "1"}, [][]string{{"-gone", "-left"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := startDelta(t)
			c.resume(cds, tt.versions, "*", "gone")
			for _, want := range tt.want {
				c.ack(c.want(cds, want...))
			}
			c.fence()
		})
	}
}

func TestDelta_WildcardOfReconnectingClientIsAnswered(t *testing.T) {
	s, c := startDelta(t, cluster("a"))
	c.subscribe(cds)
	versions := c.want(cds, "a").versions
	c.cancel()
	c = s.openDelta(t)
	c.resume(cds, versions)
	c.want(cds)
	c.fence()
}

// DeltaDiscoveryRequest.initial_resource_versions: only the first message of a
// type has it.
func TestDelta_InitialVersionsCountInTheFirstRequestOnly(t *testing.T) {
	s, c := startDelta(t, cluster("a"), cluster("b"))
	c.subscribe(cds, "a")
	versions := c.want(cds, "a").versions
	versions["b"] = s.store.Get(cds, "b").Version()
	c.resume(cds, versions, "a", "b")
	c.want(cds, "a", "b")
}

// A resource that the client asks for again in its second request may have been
// dropped since the first.
func TestDelta_InitialVersionsDoNotOutliveTheFirstRequest(t *testing.T) {
	s, c := startDelta(t, cluster("a"))
	c.resume(cds, map[string]string{"a": s.store.Get(cds, "a").Version()}, "a")
	c.fence()
	c.unsubscribe(cds, "a")
	c.subscribe(cds, "a")
	c.want(cds, "a")
}
