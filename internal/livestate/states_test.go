package livestate

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient"
)

// show writes what a State says, without the last change, which is that of other tests.
func show(s *State) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
	}
	line("%s", s.Verdict.Text[:strings.LastIndex(s.Verdict.Text, " · ")])
	for _, p := range s.Problems {
		line("  %s %s: %s: %s", p.Severity, p.Kind, p.Subject, p.Text)
	}
	for _, x := range s.Servers {
		if !x.BehindSince.IsZero() {
			line("  server %s, behind since %v ago", x.URI, time.Since(x.BehindSince))
		}
	}
	for _, c := range s.Channels {
		line("  channel %s: %s %s", c.Target, c.Health, c.Error)
	}
	for _, c := range s.Clusters[:min(len(s.Clusters), 5)] {
		line("  cluster %s: %s %s; %v", c.Name, c.Health, c.Error, &c.Endpoints)
		for _, e := range c.BadEndpoints {
			line("    endpoint %s: %s", e.Addresses[0], cmp.Or(e.Error, cmp.Or(e.Ejection, new(inspect.Ejection)).Method, e.HealthCheck, e.Health))
		}
		for _, r := range c.Routes {
			line("    route %s: %s", r.Route, RPCs(r.RPCs))
		}
	}
	for _, x := range s.Splits {
		for i := range x.Clusters {
			line("  split %s %s: %s %.1f/s %s", x.Target, x.Route, x.Clusters[i].Name, x.Clusters[i].Minute.Rate(), Percent(x.Clusters[i].Minute.Share()))
		}
	}
	return b.String()
}

// counted are RPCs of the last minute that have ended.
func counted(target, route, cluster string, ended, failed uint64) *outcomes.Report {
	r := &outcomes.Report{
		Key: outcomes.Key{Target: target, Route: route, Cluster: cluster}, Started: 100, Minute: outcomes.Minute{Seconds: 10, Started: ended, Ended: ended, Failed: failed},
	}
	if failed > 0 {
		r.Last = &outcomes.Failure{Code: "UNAVAILABLE", Text: "lost"}
	}
	return r
}

// TestStates takes states, which are in testdata/states.txt.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const target = "xds:///s"
		now := time.Now()
		var got strings.Builder
		take := func(title string, s *Source, reports ...*outcomes.Report) *State {
			state := take(t.Context(), s, now.Add(-time.Minute), reports)
			got.WriteString("== " + title + "\n" + show(state) + "\n")
			return state
		}
		of := func(channels ...inspect.Channel) *Source { return &Source{Channels: channels} }
		well := serving("well", inspect.Ready, "")

		clusters := []inspect.Cluster{
			well, {Name: "dormant", Phase: inspect.PhaseDormant, State: inspect.Idle},
			{Name: "missing", Phase: inspect.PhaseFailed, State: inspect.TransientFailure, Error: "there is no such Cluster"},
		}
		for i := range 1000 {
			clusters = append(clusters, serving(fmt.Sprintf("c%03d", i), inspect.TransientFailure, "connection refused"))
		}
		failed := func(kind xdsclient.ErrorKind, ago time.Duration) *xdsclient.Failure {
			return &xdsclient.Failure{Time: now.Add(-ago), Err: &xdsclient.Error{Kind: kind, Server: "relay:443", Err: errors.New("no such thing")}}
		}
		source := of(configured(target, clusters...))
		source.Clients = []*xdsclient.Dump{{
			Servers: []xdsclient.ServerDump{{URI: "cp:443", Err: errors.New("refused")}},
			Resources: []xdsclient.ResourceDump{
				{TypeURL: typeurl.Cluster, Name: "missing", State: xdsclient.StateDoesNotExist, Failure: failed("", 0)},
				{TypeURL: typeurl.Cluster, Name: "other", State: xdsclient.StateNACKed, Failure: failed("", 0)},
			},
		}}
		s := take("what is wrong is told once, however many clusters have it, and a resource's error as that of its cluster", source)
		s.Channels = append(make([]Channel, maxChannels), s.Channels...)
		if text := s.JSON(); s.Channels[0].Target != target || len(s.Clusters) != MaxClusters || s.ClustersLeftOut != 1003-MaxClusters || len(text) > 200<<10 {
			t.Errorf("bounded, there are %d clusters, %d left out, in %d bytes", len(s.Clusters), s.ClustersLeftOut, len(text))
		}

		source = of(configured(target, well))
		source.Clients = []*xdsclient.Dump{{
			Servers: []xdsclient.ServerDump{{URI: "relay:443", Connected: true}, {URI: "other:443", Connected: true}},
			Resources: []xdsclient.ResourceDump{
				{TypeURL: typeurl.Cluster, Name: "a", State: xdsclient.StateReceivedError, Failure: failed(xdsclient.KindUnreachable, 12*time.Second)},
				{TypeURL: typeurl.Cluster, Name: "b", State: xdsclient.StateReceivedError, Failure: failed(xdsclient.KindUnreachable, 22*time.Second)},
				{TypeURL: typeurl.Cluster, Name: "d", State: xdsclient.StateNACKed, Failure: failed(xdsclient.KindInvalid, time.Minute)},
			},
		}}
		take("a relay that says in place of resources that its control plane is unreachable is one problem", source)

		lost := []*xdsclient.Dump{{Servers: []xdsclient.ServerDump{{URI: "cp:443", Err: errors.New("refused")}}}}
		for _, c := range []struct {
			title, mode string
			state       inspect.State
			config      *inspect.Config
			clients     []*xdsclient.Dump
		}{
			{"channel: configured", "xDS", inspect.Ready, &inspect.Config{Version: 1}, nil},
			{"channel: idle", "xDS", inspect.Idle, nil, nil},
			{"channel: without a bootstrap", "undecided", inspect.TransientFailure, nil, nil},
			{"channel: refused", "xDS", inspect.TransientFailure, &inspect.Config{Version: 1, Error: "no virtual host"}, nil},
			{"channel: waiting", "undecided", inspect.Connecting, new(inspect.Config), nil},
			{"channel: waiting for a server that is lost", "undecided", inspect.Connecting, new(inspect.Config), lost},
			{"channel: DNS", "DNS", inspect.Ready, new(inspect.Config), nil},
			{"channel: DNS without a bootstrap", "DNS", inspect.Ready, nil, nil},
			{"channel: DNS, idle", "DNS", inspect.Idle, nil, nil},
		} {
			one := inspect.Channel{Target: target, Mode: c.mode, State: c.state, Reason: "no answer", Why: "no bootstrap"}
			if c.config != nil {
				one = one.WithSource(&channel{config: *c.config})
			}
			take(c.title, &Source{Channels: []inspect.Channel{one}, Clients: c.clients})
		}

		take("endpoints are counted by what is wrong with them, in members too", of(configured(target, inspect.Cluster{
			Name: "c", Phase: inspect.PhaseServing, State: inspect.Ready, Members: []inspect.Member{{Cluster: inspect.Cluster{
				Priorities: []inspect.Priority{{Localities: []inspect.Locality{{Endpoints: []inspect.Endpoint{
					{Health: "HEALTHY", State: inspect.Ready}, {Health: "UNKNOWN", State: inspect.Idle}, {Health: "HEALTHY", State: inspect.Connecting},
					{Addresses: []string{"a:1"}, Health: "HEALTHY", State: inspect.TransientFailure, Error: "refused"},
					{Addresses: []string{"b:1"}, Health: "HEALTHY", State: inspect.Ready, Ejection: &inspect.Ejection{Method: "success_rate"}},
					{Addresses: []string{"c:1"}, Health: "UNHEALTHY", State: inspect.Idle}, {Addresses: []string{"d:1"}, Health: "HEALTHY", State: inspect.Connecting, HealthCheck: "NOT_SERVING"},
				}}}}},
			}}},
		})))

		one := configured(target, well)
		take("channels with one target share RPCs; routes are listed by traffic, then by name", of(one, one),
			counted(target, "", "", 1, 1), counted(target, "c", "well", 1, 0), counted(target, "a", "well", 1, 0), counted(target, "b", "well", 2, 0))
		take("RPCs that are not counted apart are judged on their own", of(one),
			counted(outcomes.Others, outcomes.Others, outcomes.Others, 10, 10), counted(target, "", "well", 9990, 0))
		take("a route with several clusters, those with failures first; RPCs without a cluster, of clusters that get none any more, and of other targets do not count",
			of(configured(target, serving("v1", inspect.Ready, ""))),
			counted(target, "/", "v2", 10, 5), counted(target, "/", "v1", 90, 0), counted(target, "/", "", 1, 1),
			counted(target, "/a", "v1", 1, 0), counted(target, "/a", "v2", 1, 0),
			counted(target, "/past", "v1", 1, 0), counted(target, "/past", "v2", 0, 0), counted(target, "/one", "v1", 1, 1),
			counted("xds:///other", "/one", "v1", 1, 1), counted("xds:///other", "/one", "v2", 1, 1))
		take("the RPCs of clusters with the same cause are told together", of(configured(target,
			serving("c0", inspect.TransientFailure, "refused"), serving("c1", inspect.TransientFailure, "refused"), serving("c2", inspect.TransientFailure, "refused"))),
			counted(target, "", "c0", 4, 3), counted(target, "", "c1", 5, 4), counted(target, "", "c2", 6, 5))
		for _, c := range []struct {
			title, cluster string
			ago            time.Duration
			since          uint64
		}{
			{"failing", "well", 0, 0}, {"failing now and then", "well", 3 * time.Second, 9}, {"repaired", "well", 34 * time.Second, 9},
			{"few RPCs", "well", 34 * time.Second, 0}, {"of a cluster that is gone", "gone", 34 * time.Second, 0},
		} {
			r := counted(target, "", c.cluster, 10, 5)
			r.FailedUntil, r.EndedSince = now.Add(-c.ago), c.since
			take("RPCs: "+c.title, of(one), r)
		}
		golden.Check(t, "testdata/states.txt", strings.TrimRight(got.String(), "\n")+"\n")
	})
}
