package testutils_test

import (
	"context"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// wants expects a response with other items over delta than over SotW.
func (p *peer) wants(moment, typeURL string, sotw, delta []string) {
	p.t.Helper()
	if p.delta {
		p.expect(moment, typeURL, delta...)
	} else {
		p.expect(moment, typeURL, sotw...)
	}
}

func TestFakeServer_ResourcesComeChangeAndGo(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		p := open()
		set(t, s, cds, "a", "one")
		p.subscribe(cds, "a", "b")
		p.wants("at first", cds, []string{"one"}, []string{"-b", "a: one"})
		set(t, s, cds, "b", "two")
		p.wants("b is new", cds, []string{"one", "two"}, []string{"b: two"})
		s.Update(t, func(tx *testutils.Tx) { put(tx, cds, "b", "two"); put(tx, cds, "c", "not asked for") })
		set(t, s, cds, "a", "three")
		p.wants("b is the same, a another", cds, []string{"three", "two"}, []string{"a: three"})
		s.Delete(t, cds, "a")
		p.wants("a is gone", cds, []string{"two"}, []string{"-a"})
		p.unsubscribe(cds, "b")
		p.awaitLocators(s, 1)
		set(t, s, cds, "b", "three")
		set(t, s, cds, "a", "four")
		p.wants("b is not asked for any more", cds, []string{"four"}, []string{"a: four"})
		p.subscribe(cds, "b")
		p.wants("b is asked for again", cds, []string{"four", "three"}, []string{"b: three"})
	})
}

// SotW of types other than Listeners and Clusters has only what is new, and cannot say that a name is not there.
func TestFakeServer_SotWOfRoutesHasChanges(t *testing.T) {
	t.Parallel()
	s := testutils.StartFakeServer(t)
	p := openPeer(t, s, adsService, false)
	set(t, s, rds, "a", "one")
	p.subscribe(rds, "a", "b")
	p.expect("at first", rds, "one")
	s.Delete(t, rds, "a")
	set(t, s, rds, "b", "two")
	p.expect("a is gone, b new", rds, "two")

	explicit := testutils.StartFakeServer(t, testutils.NotFoundErrors())
	p = openPeer(t, explicit, adsService, false)
	p.subscribe(rds, "a", "b")
	p.expect("nothing is there", rds, `!a: NotFound there is no RouteConfiguration "a"`, `!b: NotFound there is no RouteConfiguration "b"`)
	set(t, explicit, rds, "a", "one")
	p.expect("a is there", rds, "one")
	explicit.Delete(t, rds, "a")
	p.expect("a is gone", rds, `!a: NotFound there is no RouteConfiguration "a"`)
}

func TestFakeServer_Wildcard(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		p, explicit := open(), open()
		p.subscribe(cds)
		p.expect("nothing is there", cds)
		explicit.subscribe(cds, "*")
		explicit.expect("nothing is there", cds)
		s.Update(t, func(tx *testutils.Tx) { put(tx, cds, "a", "one"); put(tx, cds, "b", "two") })
		for _, p := range []*peer{p, explicit} {
			p.wants("two", cds, []string{"one", "two"}, []string{"a: one", "b: two"})
		}
		s.Delete(t, cds, "a")
		for _, p := range []*peer{p, explicit} {
			p.wants("one", cds, []string{"two"}, []string{"-a"})
		}
	})
}

// xRFC TP1, "Glob".
func TestFakeServer_GlobCollection(t *testing.T) {
	t.Parallel()
	const dir = "xdstp://a/envoy.config.cluster.v3.Cluster/d/"
	s := testutils.StartFakeServer(t)
	p := openPeer(t, s, adsService, true)
	p.subscribe(cds, dir+"*")
	p.expect("empty", cds, "-"+dir+"*")
	s.Update(t, func(tx *testutils.Tx) {
		put(tx, cds, dir+"m", "one")
		put(tx, cds, dir+"sub/n", "below")
		put(tx, cds, "old-style", "elsewhere")
	})
	p.expect("a member", cds, dir+"m: one")
	s.Update(t, func(tx *testutils.Tx) { tx.SetError(cds, dir+"*", status.New(codes.Internal, "broken")) })
	p.expect("in error", cds, "!"+dir+"*: Internal broken")
	set(t, s, cds, dir+"m", "two")
	s.Delete(t, cds, dir+"*")
	p.expect("the error has ended", cds, dir+"m: two")
	s.Delete(t, cds, dir+"m")
	p.expect("the member is gone", cds, "-"+dir+"m")
	p.unsubscribe(cds, dir+"*")
	p.awaitLocators(s, 0)
	set(t, s, cds, dir+"m", "three")
	p.subscribe(cds, "old-style")
	p.expect("not subscribed any more", cds, "old-style: elsewhere")
}

// xRFC TP3, "Protocol Behavior": an error is sent once, until the resource is sent.
func TestFakeServer_ErrorInPlaceOfAResource(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		p := open()
		set(t, s, rds, "a", "one")
		set(t, s, rds, "b", "two")
		p.subscribe(rds, "a", "b")
		p.wants("at first", rds, []string{"one", "two"}, []string{"a: one", "b: two"})
		s.Update(t, func(tx *testutils.Tx) { tx.SetError(rds, "a", status.New(codes.PermissionDenied, "no")) })
		p.expect("an error", rds, "!a: PermissionDenied no")
		set(t, s, rds, "b", "three")
		p.wants("the error is not repeated", rds, []string{"three"}, []string{"b: three"})
		set(t, s, rds, "a", "four")
		p.wants("the resource is back", rds, []string{"four"}, []string{"a: four"})
	})
}

// The changes of one update are sent make before break: what is referred to first, and removals of Clusters last.
func TestFakeServer_MakesBeforeItBreaks(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		p := open()
		for _, typeURL := range []string{rds, lds, eds, cds} {
			set(t, s, typeURL, "old", "old")
			p.subscribe(typeURL, "old", "new")
			p.wants("at first", typeURL, []string{"old"}, []string{"-new", "old: old"})
		}
		s.Update(t, func(tx *testutils.Tx) {
			for _, typeURL := range []string{rds, lds, eds, cds} {
				tx.Delete(typeURL, "old")
				put(tx, typeURL, "new", "new")
			}
		})
		p.wants("a Cluster is made", cds, []string{"new", "old"}, []string{"new: new"})
		p.wants("its endpoints", eds, []string{"new"}, []string{"new: new"})
		p.wants("the Listener", lds, []string{"new"}, []string{"-old", "new: new"})
		p.wants("routes", rds, []string{"new"}, []string{"-old", "new: new"})
		p.wants("a Cluster is broken", cds, []string{"new"}, []string{"-old"})
		if p.delta {
			p.expect("its endpoints are", eds, "-old")
		}
	})
}

// A client that reconnects, to another server with the same resources, is sent what it does not have.
func TestFakeServer_InitialVersions(t *testing.T) {
	t.Parallel()
	s := testutils.StartFakeServer(t)
	other := testutils.StartFakeServer(t, testutils.OverStore(s.Store()))
	set(t, s, cds, "a", "one")
	versionOf := func(text string) string { // those of resources are the same in every server
		third := testutils.StartFakeServer(t)
		set(t, third, cds, "a", text)
		return firstVersion(t, third, "a")
	}
	p := openPeer(t, other, adsService, true)
	p.versions = map[string]string{"a": versionOf("one"), "b": "any", "c": versionOf("another")}
	set(t, s, cds, "c", "three")
	p.subscribe(cds, "a", "b", "c")
	p.expect("what differs", cds, "c: three")
	p.expect("what is gone", cds, "-b")
}

func TestFakeServer_StoreSurvivesARestart(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		for _, stop := range []func(){s.Stop, s.GracefulStop} {
			set(t, s, cds, "a", "one")
			p, addr := open(), s.Addr()
			p.subscribe(cds, "a")
			p.wants("at first", cds, []string{"one"}, []string{"a: one"})
			stop()
			p.mustEnd(codes.Unavailable)
			if got := s.Clients(); len(got) != 0 {
				t.Errorf("clients of a stopped server: %+v", got)
			}
			xdstest.NoError(t, s.Restart())
			if s.Addr() != addr {
				t.Errorf("the address changed from %s to %s", addr, s.Addr())
			}
			p = open()
			p.subscribe(cds, "a")
			p.wants("again", cds, []string{"one"}, []string{"a: one"})
		}
	})
}

func TestFakeServer_ClientsAndTheirAnswers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		p := open()
		set(t, s, cds, "a", "one")
		p.byLocators, p.fault = true, "no good"
		p.subscribe(cds, "b", "a env=prod")
		p.next()
		rejected := func(all []testutils.ClientStatus) bool {
			return len(all) == 1 && len(all[0].Types) == 1 && all[0].Types[0].NACK != nil
		}
		all, err := s.Await(p.ctx, rejected)
		xdstest.NoError(t, err)
		c, typ := all[0], all[0].Types[0]
		if c.Delta != p.delta || c.Node.GetId() != "n" || typ.TypeURL != cds || typ.Sent != "1" || !typ.Answered || typ.NACK.Message() != "no good" {
			t.Errorf("clients: %+v", all)
		}
		if l := typ.Locators; len(l) != 2 || l[0].Name != "a" || l[0].Constraints.String() != "{env=prod}" || l[1].Name != "b" {
			t.Errorf("locators: %+v", l)
		}
		p.fault = ""
		set(t, s, cds, "a", "two")
		p.next()
		_, err = s.Await(p.ctx, func(all []testutils.ClientStatus) bool {
			return all[0].Types[0].Answered && all[0].Types[0].NACK == nil && all[0].Types[0].Sent == "2"
		})
		xdstest.NoError(t, err)

		canceled, cancel := context.WithCancel(p.ctx)
		cancel()
		if _, err := s.Await(canceled, rejected); err == nil || !strings.Contains(err.Error(), "Sent:2") {
			t.Errorf("waiting in vain: %v", err)
		}
	})
}

func TestStore_UpdateIsAllOrNothing(t *testing.T) {
	t.Parallel()
	s := testutils.NewStore()
	err := s.Update(func(tx *testutils.Tx) {
		tx.Set(&clusterpb.Cluster{Name: "good"}, &endpointpb.ClusterLoadAssignment{ClusterName: "good"})
		tx.Set(&clusterpb.Cluster{}, durationpb.New(1))
		tx.Set(&clusterpb.Cluster{Name: "\xff"})
		tx.SetError(cds, "fine", status.New(codes.OK, ""))
	})
	for _, want := range []string{`resource "" of type "` + cds, "Duration", "invalid UTF-8", `in place of "fine": the status is OK`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not have %q", err, want)
		}
	}
	server := testutils.StartFakeServer(t, testutils.OverStore(s))
	p := openPeer(t, server, adsService, false)
	p.subscribe(cds)
	p.expect("nothing was set", cds)
}
