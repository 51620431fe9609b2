package testutils_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A client that reconnects is sent what it does not have.
func TestFakeServer_InitialVersions(t *testing.T) {
	t.Parallel()
	s := testutils.StartFakeServer(t)
	set(t, s, cds, "a", "one")
	versionOf := func(text string) string { // those of resources are the same in every server
		third := testutils.StartFakeServer(t)
		set(t, third, cds, "a", text)
		return firstVersion(t, third, "a")
	}
	p := openPeer(t, s, true)
	p.versions = map[string]string{"a": versionOf("one"), "b": "any", "c": versionOf("another")}
	set(t, s, cds, "c", "three")
	p.subscribe(cds, "a", "b", "c")
	p.expect("what differs", cds, "c: three")
	p.expect("what is gone", cds, "-b")
}

func TestFakeServer_StoreSurvivesARestart(t *testing.T) {
	one := func(p *peer) string { return map[bool]string{false: "one", true: "a: one"}[p.delta] }
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		for _, stop := range []func(){s.Stop, s.GracefulStop} {
			set(t, s, cds, "a", "one")
			p, addr := open(), s.Addr()
			p.subscribe(cds, "a")
			p.expect("at first", cds, one(p))
			stop()
			p.mustEnd(codes.Unavailable)
			if got := s.Clients(); len(got) != 0 {
				t.Errorf("clients of a stopped server: %+v", got)
			}
			xdstest.NoError(t, s.Restart())
			xdstest.Equal(t, "address", addr, s.Addr())
			p = open()
			p.subscribe(cds, "a")
			p.expect("again", cds, one(p))
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
			return len(s.Clients()) == 1 && len(all) == 1 && len(all[0].Types) == 1 && all[0].Types[0].NACK != nil
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

func TestFakeServer_UpdateIsAllOrNothing(t *testing.T) {
	t.Parallel()
	s := testutils.StartFakeServer(t)
	err := s.TryUpdate(func(tx *testutils.Tx) {
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
	p := openPeer(t, s, false)
	p.subscribe(cds)
	p.expect("nothing was set", cds)
}

func TestFakeServer_UpdatesAreOneAtATime(t *testing.T) {
	t.Parallel()
	s, n := testutils.StartFakeServer(t), 0
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 100 {
				s.Update(t, func(*testutils.Tx) { n++ })
			}
		})
	}
	all.Wait()
	xdstest.Equal(t, "updates", 200, n)
}
