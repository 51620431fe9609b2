package livestate

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/testca"
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

// gRPC clients take 4 MiB by default, so that is the most that peers can make of a State.
func TestLargestState(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<10)
	rpcs := func() *outcomes.Report { return &outcomes.Report{Last: &outcomes.Failure{Text: long}} }
	var s State
	for range 500 {
		c := &Cluster{Name: long, Target: long, Error: long, Notes: long, RPCs: rpcs()}
		for range MaxEndpoints {
			c.BadEndpoints = append(c.BadEndpoints, inspect.Endpoint{Addresses: []string{long}, Error: long})
			c.Routes = append(c.Routes, Route{Route: long, RPCs: rpcs()})
		}
		split := Split{Target: long, Route: long}
		for range MaxSplit {
			split.Clusters = append(split.Clusters, SplitCluster{Name: long + long})
		}
		s.Splits = append(s.Splits, split)
		s.Certificates = append(s.Certificates, certfiles.Identity{File: long + long})
		s.Clusters = append(s.Clusters, c)
		s.Problems = append(s.Problems, Problem{Subject: long, Text: long, Where: long, Target: long, Cluster: long, Server: long})
		s.Servers = append(s.Servers, Server{URI: long, Error: long})
		s.Channels = append(s.Channels, Channel{Target: long, Error: long, RPCs: rpcs()})
	}
	if text := s.JSON(); len(text) > 3<<20 {
		t.Errorf("the largest state has %d bytes", len(text))
	}
	if n := len(s.Clusters[0].BadEndpoints); n != MaxEndpoints {
		t.Errorf("the worst cluster has %d bad endpoints, want %d", n, MaxEndpoints)
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
	if c.Name != cluster || c.Target != target || c.BadEndpoints[0].Addresses[0] != cluster || s.Channels[0].Target != target || s.Servers[0].URI != cluster ||
		p.Cluster != cluster || p.Target != target || s.Problems[1].Server != cluster {
		t.Error("names are not as they were")
	}
	if c.RPCs == nil || len(p.Subject)+len(p.Text) > 6<<10 || strings.ContainsAny(p.Subject+p.Text, "\x01\u202e") {
		t.Errorf("the texts are %q, %q", p.Subject, p.Text)
	}
	if err := json.Unmarshal(s.JSON(), s); err != nil {
		t.Fatal(err)
	}
	c = s.Clusters[0]
	for _, name := range []string{c.Name, c.Target, c.BadEndpoints[0].Addresses[0], s.Channels[0].Target, s.Servers[0].URI, s.Problems[0].Cluster, s.Problems[0].Target, s.Problems[1].Server} {
		if len(name) > 1200 {
			t.Errorf("a name of %d bytes leaves the process", len(name))
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
		f.IssueFor(ca, &x509.Certificate{NotBefore: now.Add(-100 * time.Hour), NotAfter: now.Add(left + 30*time.Second)})
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
