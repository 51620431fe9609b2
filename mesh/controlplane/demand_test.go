package controlplane_test

import (
	"fmt"
	"slices"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func TestOnDemand_FirstAndLastSubscriber(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		src := newSource(t, s.store, eds)
		one, two := open(s), open(s)
		one.subscribe(eds, "a")
		d := src.wantBegun("a")[0]
		if d.TypeURL != eds || d.Collection() || !d.Constraints.IsZero() || d.Stream != 0 {
			t.Errorf("the demand is %+v", d)
		}
		one.fence() // nothing is sent before the answer
		src.answer(d, given(t, "7", "a", assignment("a")))
		one.ack(one.want(eds, "a"), "a")

		two.subscribe(eds, "a")
		two.ack(two.want(eds, "a"), "a")
		src.wantNone()

		one.drop(eds, nil, "a")
		one.fence()
		src.wantNone()
		xdstest.NoError(t, two.closeSend())
		src.wantEnded(d)

		// A later one is another demand, without an answer. One that ended has no effect.
		one.subscribe(eds, "a")
		again := src.wantBegun("a")[0]
		src.answer(d, given(t, "8", "a", assignment("a")))
		one.fence()
		src.fail(again, codes.Unavailable, "away")
		one.want(eds, "!a: Unavailable")
	})
}

// A source that has no room for a demand is asked again for each client that joins, which may have room of its
// own. All subscribers get the answer.
func TestOnDemand_IsAskedAgainForOthersWhenExhausted(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		src := newSource(t, s.store, eds)
		one, two, three := open(s), open(s), open(s)
		one.subscribe(eds, "a")
		d := src.wantBegun("a")[0]
		src.fail(d, codes.ResourceExhausted, "full")
		one.want(eds, "!a: ResourceExhausted")

		two.subscribe(eds, "a")
		again := src.wantBegun("a")[0]
		src.wantEnded(d)
		if again.First == d.First {
			t.Errorf("both demands began with stream %d, want that of the client that joined", d.First)
		}
		two.want(eds, "!a: ResourceExhausted")
		src.answer(d, given(t, "7", "a", assignment("late"))) // is over
		src.answer(again, given(t, "8", "a", assignment("a")))
		one.want(eds, "a")
		two.want(eds, "a")
		three.subscribe(eds, "a")
		three.want(eds, "a")
		src.wantNone()
	})
}

func TestOnDemand_EndsAndBeginsBetweenTwoCalls(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		src := newSource(t, s.store, eds)
		entered, leave := make(chan struct{}, 1), make(chan struct{})
		s.store.OnDemand(rds, func([]*controlplane.Demand, []*controlplane.Demand) {
			entered <- struct{}{}
			<-leave
		})
		c := open(s)
		c.subscribe(eds, "a", "b")
		src.wantBegun("a", "b")
		blocker := open(s)
		blocker.subscribe(rds, "r")
		receive(t, entered)
		// The source is not notified now.
		c.drop(eds, []string{"a"}, "b")
		c.drop(eds, []string{}, "a")
		c.subscribe(eds, "a", "c")
		c.drop(eds, []string{"a"}, "c")
		c.fence()
		close(leave)
		if d := receive(t, src.ended); d.Name != "b" {
			t.Errorf("%q ended", d.Name)
		}
		c.subscribe(eds, "a", "z")
		src.wantBegun("z") // the next: there was no notification of a or c
		src.wantNone()
	})
}

// "In response to a given subscription request from the client containing a set of dynamic parameter
// constraints, the server will send a resource whose dynamic parameters match the dynamic parameter
// constraints in the request."
func TestTP2_OnDemandByConstraints(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		src := newSource(t, s.store, eds)
		c, other := open("one"), open("two")
		three, any := c.subscribe(eds, "a", exactly(t, "shard", "3")), c.subscribe(eds, "a", inRange(t, "shard", dynparam.Range{Max: 5}))
		d := src.wantBegun("a", "a")
		if d[0].Constraints.Key() > d[1].Constraints.Key() || d[0].Constraints.Equal(d[1].Constraints) {
			t.Fatalf("demands for %v and %v", d[0].Constraints, d[1].Constraints)
		}
		byConstraints := map[string]*controlplane.Demand{d[0].Constraints.Key(): d[0], d[1].Constraints.Key(): d[1]}
		src.answer(byConstraints[three.ask.constraints.Key()], given(t, "v", "a", variant(eds, "3"), "shard", "3"))
		c.wants(three, "3")

		// "the cache must attempt to fetch a resource from the authoritative server with that
		// constraint before falling back to using the one it already has cached"
		wide := other.subscribe(eds, "a", inRange(t, "shard", dynparam.Range{Max: 5}))
		other.wants(wide, "")
		src.answer(byConstraints[any.ask.constraints.Key()], given(t, "w", "a", variant(eds, "5"), "shard", "5"))
		other.wants(wide, "5")
		c.wants(any, "5")
		c.wants(three, "3")

		src.fail(byConstraints[three.ask.constraints.Key()], codes.PermissionDenied, "no")
		c.wants(three, "PermissionDenied: no")
		c.wants(any, "5")
		src.wantNone()
	})
}

func TestOnDemand_AnswersChange(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.Options{NotFoundErrors: true})
	src := newSource(t, s.store, eds)
	sotw, delta := s.open(t), s.openDelta(t)
	sotw.subscribe(eds, "a")
	delta.subscribe(eds, "a")
	d := src.wantBegun("a")[0]
	check := func(want ...string) {
		t.Helper()
		sotw.ack(sotw.want(eds, want[0]), "a")
		delta.ack(delta.want(eds, want[len(want)-1]))
	}
	src.answer(d, nil)
	check("!a: NotFound", "-a")
	src.answer(d, given(t, "1", "a", assignment("a")))
	check("a")
	src.fail(d, codes.Unavailable, "away")
	check("!a: Unavailable")
	src.fail(d, codes.Unavailable, "away") // the same again
	sotw.fence()
	delta.fence()
	src.answer(d, given(t, "1", "a", assignment("a")))
	check("a")
	src.answer(d, given(t, "2", "a", assignment("a"))) // another version
	check("a")
	src.answer(d, nil)
	check("!a: NotFound", "-a")
}

// A version that a source gives need not stand for the same bytes each time: its control plane may have
// corrected a resource that was spoilt on the way.
func TestTP2_OnDemandOtherBytesUnderTheSameVersion(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		src := newSource(t, s.store, dynparam.MapTypeURL, eds)
		c := open("one")
		for typeURL, name := range map[string]string{dynparam.MapTypeURL: dpdsName, eds: "a"} {
			h := c.subscribe(typeURL, name, unconstrained)
			d := src.wantBegun(name)[0]
			src.answer(d, given(t, "1", name, variant(typeURL, "spoilt")))
			c.wants(h, "spoilt")
			src.answer(d, given(t, "1", name, variant(typeURL, "correct")))
			c.wants(h, "correct")
		}
	})
}

// A SotW client takes a Cluster that a response lacks for deleted: so one that has just reconnected is
// sent nothing before all is known.
func TestOnDemand_CompleteResponses(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	src := newSource(t, s.store, cds)
	c := s.open(t)
	c.subscribe(cds, "a", "b", "c")
	d := src.wantBegun("a", "b", "c")
	src.answer(d[0], given(t, "1", "a", cluster("a")))
	src.fail(d[1], codes.NotFound, "no b")
	c.fence()
	src.answer(d[2], given(t, "1", "c", cluster("c")))
	c.ack(c.want(cds, "!b: NotFound", "a", "c"), "a", "b", "c")

	// Later the client asks for one more, and is sent changes of the others meanwhile.
	c.subscribe(cds, "a", "b", "c", "d")
	more := src.wantBegun("d")[0]
	c.ack(c.want(cds, "a", "c"), "a", "b", "c", "d")
	src.answer(d[0], given(t, "2", "a", changed("a", "2")))
	c.ack(c.want(cds, "a", "c"), "a", "b", "c", "d")
	src.answer(more, given(t, "1", "d", cluster("d")))
	c.ack(c.want(cds, "a", "c", "d"), "a", "b", "c", "d")
	src.answer(d[2], nil)
	c.ack(c.want(cds, "a", "d"), "a", "b", "c", "d")
}

// That a relay cannot reach its management servers is no answer for a client that may have the resource from before, and does not
// know the error: it would take the response without the resource for its deletion.
func TestOnDemand_CompleteResponsesOfARelayThatReachesNobody(t *testing.T) {
	t.Parallel()
	away, err := status.New(codes.Unavailable, "away").WithDetails(dialect.Unreachable())
	xdstest.NoError(t, err)
	for _, tt := range []struct {
		agent, feature, version string
		withheld                bool
	}{
		{"gRPC Go", "", "7", true},
		{"gRPC Go", "", "", false},
		{"dynxds", "", "7", false},
		{"gRPC Go", dialect.RelayFeature, "7", false},
	} {
		s := startServer(t)
		src := newSource(t, s.store, cds)
		c := s.open(t)
		c.wire.(sotwWire).send(&sotwRequest{
			Node: &corepb.Node{UserAgentName: tt.agent, ClientFeatures: []string{tt.feature}}, TypeUrl: cds,
			ResourceNames: []string{"a", "b"}, VersionInfo: tt.version,
		})
		d := src.wantBegun("a", "b")
		src.answer(d[1], given(t, "1", "b", cluster("b")))
		src.update(func(tx *controlplane.Tx) { tx.AnswerError(d[0], away) })
		if tt.withheld {
			c.fence()
			src.answer(d[0], given(t, "1", "a", cluster("a")))
			c.want(cds, "a", "b")
		} else {
			c.want(cds, "!a: Unavailable", "b")
		}
	}
}

// A client is sent the error beside a resource once it has the resource, and the resource again when the error is over.
func TestOnDemand_ErrorBesideAResource(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		src := newSource(t, s.store, eds)
		away := status.New(codes.Unavailable, "away")
		one, other := given(t, "1", "a", assignment("a")), given(t, "2", "a", assignment("a"))
		early, late := open(s), open(s)
		want := func(c *client, responses ...string) {
			t.Helper()
			for _, content := range responses {
				c.ack(c.want(eds, content), "a")
			}
			c.fence()
		}
		early.subscribe(eds, "a")
		d := src.wantBegun("a")[0]
		src.answer(d, one)
		want(early, "a")

		const failed = "!a: Unavailable"
		beside := func(r *controlplane.Resource) {
			t.Helper()
			src.update(func(tx *controlplane.Tx) { tx.AnswerBeside(d, r, away) })
		}
		beside(one)
		want(early, failed)
		late.subscribe(eds, "a")
		want(late, "a", failed)
		beside(one)
		want(early)
		beside(other)
		want(early, "a", failed)
		want(late, "a", failed)
		src.answer(d, other)
		want(early, "a")
		want(late, "a")
		src.answer(d, other)
		want(late)
		beside(other)
		want(early, failed)
		want(late, failed)
		src.answer(d, one)
		want(early, "a")
		want(late, "a")
	})
}

func TestOnDemand_Wildcard(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		src := newSource(t, s.store, cds)
		s.set(t, cluster("early"))
		c := open(s)
		c.subscribe(cds)
		d := src.wantBegun("*")[0]
		if !d.Collection() {
			t.Errorf("%+v is not for a collection", d)
		}
		s.set(t, cluster("a"))
		c.fence()
		src.update(func(tx *controlplane.Tx) {
			tx.Delete(cds, "early")
			tx.SetResource(given(t, "9", "b", cluster("b")))
			tx.Answer(d, nil)
		})
		c.ack(c.want(cds, "a", "b"))
		other := open(s)
		other.subscribe(cds)
		other.ack(other.want(cds, "a", "b"))
		src.wantNone()

		src.fail(d, codes.FailedPrecondition, "none") // TP3 has no errors for it
		for _, c := range []*client{c, other} {
			if err := c.end(); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("the stream ended with %v, want FAILED_PRECONDITION", err)
			}
		}
		src.wantEnded(d)
	})
}

func TestOnDemand_Glob(t *testing.T) {
	t.Parallel()
	const (
		glob   = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/g/*"
		member = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/g/m"
	)
	s := startServer(t)
	src := newSource(t, s.store, eds)
	src.update(func(tx *controlplane.Tx) { tx.SetResource(given(t, "1", member, assignment("m"))) })
	c := s.openDelta(t)
	c.subscribe(eds, glob)
	d := src.wantBegun(glob)[0]
	if !d.Collection() {
		t.Errorf("%+v is not for a collection", d)
	}
	c.fence()
	src.answer(d, nil)
	c.ack(c.want(eds, member))
	src.fail(d, codes.PermissionDenied, "no")
	c.ack(c.want(eds, "!"+glob+": PermissionDenied"))
	src.update(func(tx *controlplane.Tx) { tx.SetResource(given(t, "2", member, assignment("m"))) })
	c.fence()
	src.answer(d, nil)
	c.ack(c.want(eds, member))
	src.update(func(tx *controlplane.Tx) { tx.Delete(eds, member) })
	c.ack(c.want(eds, "-"+member))

	// A name is not answered by a member: the source decides which variant it gets.
	src.update(func(tx *controlplane.Tx) { tx.SetResource(given(t, "3", member, assignment("m"))) })
	c.ack(c.want(eds, member))
	other := s.openDelta(t)
	other.subscribe(eds, member)
	one := src.wantBegun(member)[0]
	other.fence()
	src.answer(one, given(t, "3", member, assignment("m")))
	other.want(eds, member)
}

// "Non-Cacheability of DPDS"
func TestTP2_OnDemandOfWhatMustNotBeCached(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		src := newSource(t, s.store, dynparam.MapTypeURL, eds)
		one, two := open("one"), open("two")
		first := one.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained)
		d1 := src.wantBegun(dpdsName)[0]
		second := two.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained)
		d2 := src.wantBegun(dpdsName)[0]
		if d1.Node.GetId() != "one" || d2.Node.GetId() != "two" || d1.Stream == 0 || d1.Stream == d2.Stream {
			t.Fatalf("the demands are of %v (%d) and %v (%d)", d1.Node, d1.Stream, d2.Node, d2.Stream)
		}
		src.answer(d1, given(t, "1", dpdsName, variant(dynparam.MapTypeURL, "")))
		src.fail(d2, codes.PermissionDenied, "not you")
		one.wants(first, "")
		two.wants(second, "PermissionDenied: not you")
		two.unsubscribe(second)
		two.settle()
		if isDelta(two) {
			src.wantEnded(d2)
		}

		// Any other resource, if its first answer has that cache control.
		a, b := one.subscribe(eds, "a", unconstrained), two.subscribe(eds, "a", unconstrained)
		shared := src.wantBegun("a")[0]
		private, err := controlplane.NewResource(&discoverypb.Resource{
			Name: "a", Resource: variant(eds, "secret"), CacheControl: &discoverypb.Resource_CacheControl{DoNotCache: true},
		})
		xdstest.NoError(t, err)
		one.settle()
		two.settle()
		src.answer(shared, private)
		for range 2 {
			d := src.wantBegun("a")[0]
			src.answer(d, given(t, "", "a", variant(eds, "for "+d.Node.GetId())))
		}
		for d := range src.ended {
			if d == shared {
				break
			}
		}
		one.wants(a, "for one")
		two.wants(b, "for two")
	})
}

// A client that moves from another replica has everything already.
func TestOnDemand_InitialResourceVersions(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	src := newSource(t, s.store, eds, cds)
	c := s.openDelta(t)
	c.resume(cds, map[string]string{"x": "1", "y": "5", "gone": "3"})
	all := src.wantBegun("*")[0]
	c.resume(eds, map[string]string{"a": "7", "b": "1", "c": "1"}, "a", "b", "c")
	d := src.wantBegun("a", "b", "c")
	c.fence()
	src.update(func(tx *controlplane.Tx) {
		tx.Answer(d[0], given(t, "7", "a", assignment("a")))
		tx.Answer(d[1], given(t, "2", "b", assignment("b")))
		tx.Answer(d[2], nil)
		tx.SetResource(given(t, "1", "x", cluster("x")))
		tx.SetResource(given(t, "6", "y", cluster("y")))
		tx.Answer(all, nil)
	})
	c.want(cds, "y")
	if got := c.want(eds, "b").versions["b"]; got != "2" {
		t.Errorf("got version %q, want 2", got)
	}
	c.want(cds, "-gone")
	c.want(eds, "-c")
}

// With all versions equal, nothing at all is sent.
func TestOnDemand_NothingIsSentToAClientOfAnotherReplica(t *testing.T) {
	t.Parallel()
	const n = 100
	open := func(versions map[string]string, names []string) map[string]string {
		s := startServer(t)
		src := newSource(t, s.store, eds)
		c := s.openDelta(t)
		c.resume(eds, versions, names...)
		src.update(func(tx *controlplane.Tx) {
			for range n {
				d := receive(t, src.begun)
				tx.Answer(d, given(t, "upstream's version of "+d.Name, d.Name, assignment(d.Name)))
			}
		})
		if versions != nil {
			c.fence()
			return nil
		}
		return c.next().versions
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("r%d", i))
	}
	versions := open(nil, names)
	if len(versions) != n {
		t.Fatalf("%d resources were sent", len(versions))
	}
	open(versions, names)
}

// A client that subscribes by locators to a glob or a wildcard cannot name the variants that it has.
func TestTP2_OnDemandInitialResourceVersionsOfCollections(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	src := newSource(t, s.store, cds)
	c := s.openTwinDelta(t)
	c.send(&discoverypb.DeltaDiscoveryRequest{
		Node: &corepb.Node{Id: "n"}, TypeUrl: cds,
		ResourceLocatorsSubscribe: []*discoverypb.ResourceLocator{{Name: "*"}},
		InitialResourceVersions:   map[string]string{"x": "1", "y": "1", "gone": "1"},
	})
	d := src.wantBegun("*")[0]
	src.update(func(tx *controlplane.Tx) {
		tx.SetResource(given(t, "1", "x", cluster("x"), "env", "prod"))
		tx.SetResource(given(t, "2", "y", cluster("y"), "env", "prod"))
		tx.Answer(d, nil)
	})
	var got []string
	resp := c.recv()
	for _, r := range resp.GetResources() {
		got = append(got, r.GetName())
	}
	got = append(got, resp.GetRemovedResources()...)
	if !slices.Equal(got, []string{"y", "gone"}) {
		t.Errorf("got %q, want y and the removal of gone", got)
	}
}

// What a client has from an earlier stream is not sent again, unless it subscribes again before the source answers.
func TestOnDemand_ClientHasTheAnswer(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		s := startServer(t)
		src := newSource(t, s.store, eds)
		c := s.openDelta(t)
		c.resume(eds, map[string]string{"a": "7"}, "a")
		d := src.wantBegun("a")[0]
		if again {
			c.subscribe(eds, "a")
		}
		c.fence()
		src.answer(d, given(t, "7", "a", assignment("a")))
		if again {
			c.want(eds, "a")
		}
		c.fence()
	}
}
