package livestate

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
)

// channel is a Source of a channel with these clusters.
type channel struct {
	config   inspect.Config
	clusters []inspect.Cluster
}

func (c *channel) Config() inspect.Config { return c.config }

func (c *channel) ClusterNames() (names []string) {
	for _, x := range c.clusters {
		names = append(names, x.Name)
	}
	return names
}

func (c *channel) Cluster(_ context.Context, name string) (inspect.Cluster, bool) {
	for _, x := range c.clusters {
		if x.Name == name {
			return x, true
		}
	}
	return inspect.Cluster{}, false
}

func configured(target string, clusters ...inspect.Cluster) inspect.Channel {
	return inspect.Channel{Target: target, Mode: "xDS", State: inspect.Ready}.WithSource(&channel{inspect.Config{Version: 1}, clusters})
}

// serving is a cluster with one endpoint.
func serving(name string, state inspect.State, err string) inspect.Cluster {
	return inspect.Cluster{
		Name: name, Phase: inspect.PhaseServing, State: state,
		Priorities: []inspect.Priority{{
			Use:        inspect.Use{InUse: true, Error: err},
			Localities: []inspect.Locality{{Endpoints: []inspect.Endpoint{{Addresses: []string{"10.0.0.1:80"}, Health: "HEALTHY", State: state, Error: err}}}},
		}},
	}
}

// What is wrong is told once, however many clusters have it; a fault of a resource that has a cluster fail is told as
// that of the cluster; and a State that leaves the process is bounded.
func TestProblemsAreToldOnce(t *testing.T) {
	t.Parallel()
	clusters := []inspect.Cluster{
		serving("well", inspect.Ready, ""), {Name: "dormant", Phase: inspect.PhaseDormant, State: inspect.Idle},
		{Name: "missing", Phase: inspect.PhaseFailed, State: inspect.TransientFailure, Error: "there is no such Cluster", Resources: []inspect.Resource{{Type: "Cluster", Name: "missing"}}},
	}
	for i := range 1000 {
		clusters = append(clusters, serving(fmt.Sprintf("c%03d", i), inspect.TransientFailure, "connection refused"))
	}
	failure := &xdsclient.Failure{Time: time.Now(), Err: &xdsclient.Error{Err: errors.New("no such thing")}}
	source := &Source{
		Channels: []inspect.Channel{configured("xds:///once", clusters...)},
		Clients: []*xdsclient.Dump{{
			Servers: []xdsclient.ServerDump{{URI: "cp:443", Err: errors.New("refused")}},
			Resources: []xdsclient.ResourceDump{
				{TypeURL: typeurl.Cluster, Name: "missing", State: xdsclient.StateDoesNotExist, Failure: failure},
				{TypeURL: typeurl.Cluster, Name: "other", State: xdsclient.StateNACKed, Failure: failure},
			},
		}},
	}
	s := Take(t.Context(), source)
	var told []string
	for _, p := range s.Problems {
		told = append(told, fmt.Sprint(p.Severity, " ", p.Kind, " ", p.Subject))
	}
	want := []string{`failing cluster cluster "c000" and 999 others`, `failing cluster cluster "missing"`, "degraded server control plane cp:443", `degraded resource Cluster "other"`}
	if strings.Join(told, "\n") != strings.Join(want, "\n") {
		t.Errorf("the problems are\n%s, want\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	if !strings.HasPrefix(s.Verdict.Text, "Failing: 1,001 of 1,003 clusters · ") || !strings.Contains(s.Verdict.Text, "control plane unreachable") {
		t.Errorf("the verdict is %q", s.Verdict.Text)
	}
	s.Bound()
	text, err := json.Marshal(s)
	if err != nil || len(s.Clusters) != MaxClusters || s.ClustersLeftOut != 1003-MaxClusters || len(text) > 200<<10 {
		t.Errorf("bounded, there are %d clusters, %d left out, in %d bytes (%v)", len(s.Clusters), s.ClustersLeftOut, len(text), err)
	}
}

// If a relay says, in place of resources, that its control plane is unreachable, the server has one problem. What else is
// wrong with resources is told as ever.
func TestBehindARelay(t *testing.T) {
	t.Parallel()
	now := time.Now()
	failed := func(kind xdsclient.ErrorKind, ago time.Duration) *xdsclient.Failure {
		return &xdsclient.Failure{Time: now.Add(-ago), Err: &xdsclient.Error{Kind: kind, Server: "relay:443", Err: errors.New("away")}}
	}
	s := Take(t.Context(), &Source{
		Channels: []inspect.Channel{configured("xds:///relayed", serving("c", inspect.Ready, ""))},
		Clients: []*xdsclient.Dump{{
			Servers: []xdsclient.ServerDump{{URI: "relay:443", Connected: true}, {URI: "other:443", Connected: true}},
			Resources: []xdsclient.ResourceDump{
				{TypeURL: typeurl.Cluster, Name: "a", State: xdsclient.StateReceivedError, Failure: failed(xdsclient.KindUnreachable, 12*time.Second)},
				{TypeURL: typeurl.Cluster, Name: "b", State: xdsclient.StateReceivedError, Failure: failed(xdsclient.KindUnreachable, 22*time.Second)},
				{TypeURL: typeurl.Cluster, Name: "d", State: xdsclient.StateNACKed, Failure: failed(xdsclient.KindInvalid, time.Minute)},
			},
		}},
	})
	var told []string
	for _, p := range s.Problems {
		told = append(told, p.Kind+" "+p.Subject+": "+p.Text)
	}
	const text = "relay connected; its control plane unreachable for 22 s"
	if len(told) != 2 || told[0] != "server control plane relay:443: "+text || !strings.HasPrefix(told[1], `resource Cluster "d": NACKED`) {
		t.Errorf("the problems are\n%s", strings.Join(told, "\n"))
	}
	if !s.Servers[0].BehindSince.Equal(now.Add(-22*time.Second)) || !s.Servers[1].BehindSince.IsZero() || !strings.Contains(s.Verdict.Text, " · "+text+" · ") {
		t.Errorf("%q, %+v", s.Verdict.Text, s.Servers)
	}
}

// gRPC clients take 4 MiB by default, so that is the most that peers can make of a State.
func TestLargestState(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<10)
	rpcs := func() *RPCs { return &RPCs{Last: &LastError{Text: long}} }
	var s State
	for range 500 {
		c := &Cluster{Name: long, Target: long, Error: long, Notes: long, RPCs: rpcs()}
		for range MaxEndpoints {
			c.BadEndpoints = append(c.BadEndpoints, BadEndpoint{Address: long, Error: long})
			c.Routes = append(c.Routes, Route{Route: long, RPCs: rpcs()})
		}
		split := Split{Target: long, Route: long}
		for range MaxSplit {
			split.Clusters = append(split.Clusters, SplitCluster{Name: long + long})
		}
		s.Splits = append(s.Splits, split)
		s.Certificates = append(s.Certificates, Certificate{File: long + long})
		s.Clusters = append(s.Clusters, c)
		s.Problems = append(s.Problems, Problem{Subject: long, Text: long, Where: long, Target: long, Cluster: long, Server: long})
		s.Servers = append(s.Servers, Server{URI: long, Error: long})
		s.Channels = append(s.Channels, Channel{Target: long, Error: long, RPCs: rpcs()})
	}
	s.Bound()
	text, err := json.Marshal(&s)
	if err != nil || len(text) > 3<<20 {
		t.Errorf("the largest state has %d bytes (%v)", len(text), err)
	}
	if n := len(s.Clusters[0].BadEndpoints); n != MaxEndpoints {
		t.Errorf("the worst cluster has %d bad endpoints, want %d", n, MaxEndpoints)
	}
}

func TestHealthOfAChannel(t *testing.T) {
	t.Parallel()
	with := func(mode string, state inspect.State, config *inspect.Config) inspect.Channel {
		c := inspect.Channel{Target: "xds:///health", Mode: mode, State: state, Reason: "no answer", Why: "no bootstrap"}
		if config != nil {
			return c.WithSource(&channel{config: *config})
		}
		return c
	}
	lost := []*xdsclient.Dump{{Servers: []xdsclient.ServerDump{{URI: "cp:443", Err: errors.New("refused")}}}}
	for _, tc := range []struct {
		name    string
		channel inspect.Channel
		clients []*xdsclient.Dump
		want    Health
		err     string
	}{
		{"configured", with("xDS", inspect.Ready, &inspect.Config{Version: 1}), nil, Healthy, ""},
		{"idle", with("xDS", inspect.Idle, nil), nil, Idle, ""},
		{"without a bootstrap", with("undecided", inspect.TransientFailure, nil), nil, Failing, "no bootstrap"},
		{"refused", with("xDS", inspect.TransientFailure, &inspect.Config{Version: 1, Error: "no virtual host"}), nil, Failing, "no virtual host"},
		{"waiting", with("undecided", inspect.Connecting, new(inspect.Config)), nil, Unknown, "RPCs wait for the first configuration: no answer"},
		{"waiting for a server that is lost", with("undecided", inspect.Connecting, new(inspect.Config)), lost, Failing, "RPCs wait for the first configuration: no answer"},
		{"DNS", with("DNS", inspect.Ready, new(inspect.Config)), nil, Unknown, ""},
		{"DNS without a bootstrap", with("DNS", inspect.Ready, nil), nil, Degraded, "resolved by DNS, so that its RPCs go around the mesh: no answer"},
		{"DNS, idle", with("DNS", inspect.Idle, nil), nil, Unknown, ""},
	} {
		s := Take(t.Context(), &Source{Channels: []inspect.Channel{tc.channel}, Clients: tc.clients})
		if c := s.Channels[0]; c.Health != tc.want || c.Error != tc.err {
			t.Errorf("%s: %s, %q; want %s, %q", tc.name, c.Health, c.Error, tc.want, tc.err)
		}
		if told := len(s.Problems) > 0 && s.Problems[0].Kind == "channel"; told != (tc.want == Failing || tc.want == Degraded) || told && s.Problems[0].Severity != tc.want {
			t.Errorf("%s: the problems are %+v", tc.name, s.Problems)
		}
	}
}

// The endpoints of a cluster are counted by what is wrong with them.
func TestEndpointsOfACluster(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Minute)
	endpoints := []inspect.Endpoint{
		{Health: "HEALTHY", State: inspect.Ready}, {Health: "UNKNOWN", State: inspect.Idle}, {Health: "HEALTHY", State: inspect.Connecting},
		{Addresses: []string{"a:1"}, Health: "HEALTHY", State: inspect.TransientFailure, Error: "refused"},
		{Addresses: []string{"b:1"}, Health: "HEALTHY", State: inspect.Ready, Ejection: &inspect.Ejection{Method: "success_rate", Until: until}},
		{Addresses: []string{"c:1"}, Health: "UNHEALTHY", State: inspect.Idle}, {Addresses: []string{"d:1"}, Health: "HEALTHY", State: inspect.Connecting, HealthCheck: "NOT_SERVING"},
	}
	live := inspect.Cluster{Name: "c", Phase: inspect.PhaseServing, State: inspect.Ready, Members: []inspect.Member{{Cluster: inspect.Cluster{
		Priorities: []inspect.Priority{{Localities: []inspect.Locality{{Endpoints: endpoints}}}},
	}}}}
	c := clusterOf("t", &live, nil)
	if c.Endpoints != (Endpoints{All: 7, Ready: 1, Connecting: 1, Idle: 1, Failing: 1, Ejected: 1, Unhealthy: 2}) {
		t.Errorf("the endpoints are %+v", c.Endpoints)
	}
	var bad []string
	for _, b := range c.BadEndpoints {
		bad = append(bad, b.Address+b.Health+b.EjectedBy)
	}
	if fmt.Sprint(bad) != "[a:1 b:1success_rate c:1UNHEALTHY d:1health check: NOT_SERVING]" {
		t.Errorf("the bad ones are %v", bad)
	}
	if want := "1 of 7 endpoints cannot be reached, and outlier detection has ejected 1; a:1: refused"; c.Health != Degraded || c.Error != want {
		t.Errorf("%s: %q, want degraded: %q", c.Health, c.Error, want)
	}
}

// Channels with one target share the RPCs that have no cluster, which are a problem once; and routes are listed by traffic, then
// by name.
func TestChannelsWithOneTarget(t *testing.T) {
	t.Parallel()
	outcomes.Look()
	target := "xds:///shared-" + rand.Text()
	outcomes.Refused(target, errors.New("no route"))
	for _, route := range []string{"c", "a", "b", "b"} {
		outcomes.Find(outcomes.Key{Target: target, Route: route, Cluster: "well"}).Begin().End(nil)
	}
	one := configured(target, serving("well", inspect.Ready, ""))
	s := Take(t.Context(), &Source{Channels: []inspect.Channel{one, one}})
	if len(s.Problems) != 1 || s.Problems[0].Kind != "rpcs" || s.Problems[0].Target != target {
		t.Errorf("the problems are %+v", s.Problems)
	}
	var routes []string
	for _, r := range s.Clusters[0].Routes {
		routes = append(routes, r.Route)
	}
	if len(s.Clusters) != 1 || fmt.Sprint(routes) != "[b a c]" {
		t.Errorf("%d clusters, with the routes %v", len(s.Clusters), routes)
	}
}

// Names are what is looked up by, so that they stay as they are, however long and whatever their characters, until a State
// leaves the process.
func TestNamesStay(t *testing.T) {
	t.Parallel()
	outcomes.Look()
	target, cluster := "xds:///"+rand.Text()+"\x01"+strings.Repeat("t", 2<<10), "c\u202e"+strings.Repeat("c", 2<<10)
	outcomes.Find(outcomes.Key{Target: target, Cluster: cluster}).Begin().End(errors.New("no"))
	live := serving(cluster, inspect.TransientFailure, "refused")
	live.Priorities[0].Localities[0].Endpoints[0].Addresses[0] = cluster
	s := Take(t.Context(), &Source{Channels: []inspect.Channel{configured(target, live)}, Clients: []*xdsclient.Dump{{Servers: []xdsclient.ServerDump{{URI: cluster, Err: errors.New("no")}}}}})
	c, p := s.Clusters[0], s.Problems[0]
	if c.Name != cluster || c.Target != target || c.BadEndpoints[0].Address != cluster || s.Channels[0].Target != target || s.Servers[0].URI != cluster ||
		p.Cluster != cluster || p.Target != target || s.Problems[1].Server != cluster {
		t.Error("names are not as they were")
	}
	if c.RPCs == nil || len(p.Subject)+len(p.Text) > 6<<10 || strings.ContainsAny(p.Subject+p.Text, "\x01\u202e") {
		t.Errorf("the texts are %q, %q", p.Subject, p.Text)
	}
	s.Bound()
	for _, name := range []string{c.Name, c.Target, c.BadEndpoints[0].Address, s.Channels[0].Target, s.Servers[0].URI, s.Problems[0].Cluster, s.Problems[0].Target, s.Problems[1].Server} {
		if len(name) > 1200 {
			t.Errorf("a name of %d bytes leaves the process", len(name))
		}
	}
}

// RPCs that are not counted apart, because there are too many kinds of them, count for the verdict: on their own, as most of them may fail.
func TestOtherRPCs(t *testing.T) {
	t.Parallel()
	reports := []*outcomes.Report{
		{Key: outcomes.Key{Target: outcomes.Others, Route: outcomes.Others, Cluster: outcomes.Others}, Started: 10, Minute: outcomes.Sum{Started: 10, Ended: 10, Failed: 10}, Last: &outcomes.Failure{Code: "UNKNOWN", Text: "lost"}},
		{Key: outcomes.Key{Target: "xds:///counted", Cluster: "well"}, Started: 9990, Minute: outcomes.Sum{Started: 9990, Ended: 9990}},
	}
	s := take(t.Context(), &Source{Channels: []inspect.Channel{configured("xds:///counted", serving("well", inspect.Ready, ""))}}, time.Now().Add(-time.Minute), reports)
	if len(s.Problems) != 1 || s.Problems[0].Cluster != outcomes.Others || !strings.Contains(s.Problems[0].Text, "UNKNOWN: lost; 100 % of 10 RPCs in the last minute failed") ||
		!strings.HasPrefix(s.Verdict.Text, "Failing: 1 of 2 clusters · 0.1 % errors") {
		t.Errorf("%q, %+v", s.Verdict.Text, s.Problems)
	}
}

// The verdict distinguishes RPCs that fail now from RPCs that failed before. A verdict about RPCs names a problem, even if their cluster is gone.
func TestFailedRPCs(t *testing.T) {
	t.Parallel()
	const target = "xds:///failed"
	lost := &outcomes.Failure{Code: "UNAVAILABLE", Text: "lost"}
	for _, tc := range []struct {
		name    string
		cluster string
		ago     time.Duration
		since   uint64
		want    string
	}{
		{"failing", "c", 0, 0, "RPCs fail; the last error was UNAVAILABLE: lost; 50.0 % of "},
		{"failing now and then", "c", 3 * time.Second, 9, "RPCs fail; the last error was "},
		{"repaired", "c", 34 * time.Second, 9, "RPCs failed until 34 s ago, none since; the last error was UNAVAILABLE: lost; 50.0 % of "},
		{"few RPCs", "c", 34 * time.Second, 0, "RPCs fail; the last error was "},
		{"of a cluster that is gone", "gone", 34 * time.Second, 0, "5 RPCs in the last minute failed; the last error was UNAVAILABLE: lost"},
	} {
		reports := []*outcomes.Report{{
			Key: outcomes.Key{Target: target, Cluster: tc.cluster}, Started: 10, Minute: outcomes.Sum{Started: 10, Ended: 10, Failed: 5}, Last: lost,
			FailedUntil: time.Now().Add(-tc.ago), EndedSince: tc.since,
		}}
		s := take(t.Context(), &Source{Channels: []inspect.Channel{configured(target, serving("c", inspect.Ready, ""))}}, time.Now().Add(-time.Minute), reports)
		if len(s.Problems) != 1 || !strings.HasSuffix(s.Problems[0].Subject, strconv.Quote(tc.cluster)) || !strings.HasPrefix(s.Problems[0].Text, tc.want) || s.Verdict.State != Failing {
			t.Errorf("%s: %q, %+v; want %q", tc.name, s.Verdict.Text, s.Problems, tc.want)
		}
	}
}

// The state lists the certificates that the process presents, the one that ends first in front. One that ends soon is a problem. The test is
// not parallel: the certificates are those of all tests.
func TestCertificates(t *testing.T) {
	ca, now := testca.New(t), time.Now()
	var files []testca.Files
	for _, left := range []time.Duration{100 * time.Hour, 90 * time.Minute, -100 * time.Minute} {
		f := testca.NewFiles(t)
		f.IssueFor(ca, &x509.Certificate{NotBefore: now.Add(-100 * time.Hour), NotAfter: now.Add(left + time.Second)})
		p := certfiles.NewProvider(certfiles.Config{Certificate: f.Cert, Key: f.Key, Refresh: time.Hour})
		defer p.Close()
		files = append(files, f)
	}
	s := Take(t.Context(), &Source{Channels: []inspect.Channel{configured("xds:///certified", serving("c", inspect.Ready, ""))}})
	var listed, told []string
	for _, c := range s.Certificates {
		listed = append(listed, c.File)
	}
	for _, p := range s.Problems {
		told = append(told, fmt.Sprintf("%s %s %s: %s", p.Severity, p.Kind, p.Subject, p.Text))
	}
	const renew = "; renew the file, which is read again without a restart"
	want := []string{"degraded certificate certificate " + files[2].Cert + ": expired 99 min ago" + renew, "degraded certificate certificate " + files[1].Cert + ": expires in 90 min" + renew}
	slices.Sort(want)
	slices.Sort(told)
	if !slices.Equal(listed, []string{files[2].Cert, files[1].Cert, files[0].Cert}) || !slices.Equal(told, want) || s.Verdict.State != Degraded {
		t.Errorf("listed are %q; told %q, want %q; %q", listed, told, want, s.Verdict.Text)
	}
}

// A route with several clusters is told with all of them, those with failures first; RPCs without a cluster, of clusters that get no
// RPCs any more, and of other targets do not count.
func TestSplits(t *testing.T) {
	t.Parallel()
	const target = "xds:///split"
	report := func(target, route, cluster string, started, failed uint64) *outcomes.Report {
		return &outcomes.Report{
			Key: outcomes.Key{Target: target, Route: route, Cluster: cluster}, Started: 100, Measured: 10, Minute: outcomes.Sum{Started: started, Ended: started, Failed: failed},
		}
	}
	s := take(t.Context(), &Source{Channels: []inspect.Channel{configured(target, serving("v1", inspect.Ready, ""))}}, time.Now().Add(-time.Minute), []*outcomes.Report{
		report(target, "/", "v2", 10, 5), report(target, "/", "v1", 90, 0), report(target, "/", "", 1, 1),
		report(target, "/a", "v1", 1, 0), report(target, "/a", "v2", 1, 0),
		report(target, "/past", "v1", 1, 0), report(target, "/past", "v2", 0, 0), report(target, "/one", "v1", 1, 1),
		report("xds:///other", "/one", "v1", 1, 1), report("xds:///other", "/one", "v2", 1, 1),
	})
	var told []string
	for i := range s.Splits {
		for _, c := range s.Splits[i].Clusters {
			told = append(told, fmt.Sprintf("%s %s %s: %.1f/s %s", s.Splits[i].Target, s.Splits[i].Route, c.Name, c.Minute.Rate(), Percent(c.Minute.Share())))
		}
	}
	want := []string{target + " / v1: 9.0/s 0 %", target + " / v2: 1.0/s 50.0 %", target + " /a v1: 0.1/s 0 %", target + " /a v2: 0.1/s 0 %"}
	if strings.Join(told, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s, want\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

// The RPCs of clusters with the same cause are told together, with their sum.
func TestRPCsOfACause(t *testing.T) {
	t.Parallel()
	outcomes.Look()
	target := "xds:///cause-" + rand.Text()
	var clusters []inspect.Cluster
	for i := range 3 {
		name := fmt.Sprint("c", i)
		clusters = append(clusters, serving(name, inspect.TransientFailure, "refused"))
		for n := range 4 + i {
			var err error
			if n > 0 {
				err = errors.New("refused")
			}
			outcomes.Find(outcomes.Key{Target: target, Cluster: name}).Begin().End(err)
		}
	}
	s := Take(t.Context(), &Source{Channels: []inspect.Channel{configured(target, clusters...)}})
	if len(s.Problems) != 1 || s.Problems[0].Subject != `cluster "c2" and 2 others` || !strings.Contains(s.Problems[0].Text, "; 80.0 % of 15 RPCs in the last ") {
		t.Errorf("%+v", s.Problems)
	}
}

// asked is a Source whose balancer is asked, and does not answer if that is to be so.
type asked struct {
	*channel
	silent bool
	by     chan<- *asked
}

func (a *asked) Cluster(ctx context.Context, name string) (inspect.Cluster, bool) {
	a.by <- a
	if a.silent {
		<-ctx.Done()
		return inspect.Cluster{}, false
	}
	return a.channel.Cluster(ctx, name)
}

// A balancer that does not answer takes no time from others.
func TestABalancerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	by := make(chan *asked)
	config := func(silent bool) inspect.Channel {
		source := &channel{inspect.Config{Version: 1}, []inspect.Cluster{serving("c", inspect.Ready, "")}}
		return inspect.Channel{Target: fmt.Sprint("xds:///", silent), Mode: "xDS"}.WithSource(&asked{source, silent, by})
	}
	state := make(chan *State, 1)
	go func() {
		state <- Take(ctx, &Source{Channels: []inspect.Channel{config(true), config(true), config(false)}})
	}()
	patience := testutils.Context(t)
	for answered := false; !answered; {
		select {
		case a := <-by:
			answered = !a.silent
		case <-patience.Done():
			t.Fatal("the channel whose balancer answers is not asked")
		}
	}
	cancel()
	for {
		select {
		case <-by:
		case s := <-state:
			if len(s.Clusters) != 1 || s.Clusters[0].Target != "xds:///false" {
				t.Errorf("%d clusters are known", len(s.Clusters))
			}
			return
		}
	}
}

// panics is a Source that panics when it is asked about one of its clusters.
type panics struct{ *channel }

func (p *panics) Cluster(ctx context.Context, name string) (inspect.Cluster, bool) {
	if name == "bad" {
		panic("oops")
	}
	return p.channel.Cluster(ctx, name)
}

// Looking at a process does not end it.
func TestAPanicIsShown(t *testing.T) {
	t.Parallel()
	outcomes.Look()
	target := "xds:///panics-" + rand.Text()
	one := inspect.Channel{Target: target, Mode: "xDS", State: inspect.Ready}.WithSource(&panics{
		&channel{inspect.Config{Version: 1}, []inspect.Cluster{{Name: "bad"}, serving("well", inspect.Ready, "")}},
	})
	take := func() *Cluster {
		t.Helper()
		s := Take(t.Context(), &Source{Channels: []inspect.Channel{one}})
		if len(s.Clusters) != 2 || s.Clusters[1].Name != "well" || s.Clusters[1].Health != Healthy {
			t.Fatalf("the clusters are %+v", s.Clusters)
		}
		return s.Clusters[0]
	}
	if c := take(); c.Name != "bad" || c.Health != Unknown || c.Error != "its endpoints are not known" || !strings.HasSuffix(c.Notes, ": oops") {
		t.Errorf("%+v", c)
	}
	outcomes.Find(outcomes.Key{Target: target, Cluster: "bad"}).Begin().End(errors.New("lost"))
	if c := take(); c.Health != Failing || c.RPCs == nil || !strings.HasSuffix(c.Notes, ": oops") {
		t.Errorf("after a failed RPC: %+v", c)
	}
}
