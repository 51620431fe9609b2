package resolver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/resolver/internal/lookup"
	"github.com/dynxds/dynxds/xdsclient"
)

// keys are the types of resources in the script.
var keys = map[string]string{"lds": "Listener", "rds": "RouteConfiguration", "cds": "Cluster", "eds": "ClusterLoadAssignment"}

// script is a fixture that testdata/graph.txt leads.
type script struct {
	*fixture
	domain string         // of the names of DNS, of which nothing is known in other cases
	names  []string       // of DNS, in the case
	asked  map[string]int // how often names were looked up again, as of the last demand
	last   any            // answer of a watch
}

// domains counts the cases.
var domains atomic.Int32

// TestScript runs the cases of testdata/graph.txt, which describes its steps.
func TestScript(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/graph.txt", 30, func(t *testing.T) func([]string) string {
		s := &script{fixture: newFixture(t), domain: fmt.Sprintf(".%d.fake:80", domains.Add(1))}
		t.Cleanup(func() { s.graph.close() })
		return s.run
	})
}

// runScripts is golden.Scripts without bubbles, whose goroutines could not share the look-ups of the process.
func runScripts(t *testing.T, file string, width int, begin func(*testing.T) (run func(words []string) string)) {
	head, cases, _ := strings.Cut(golden.Read(t, file), "== ")
	got := head
	for _, c := range strings.Split(cases, "\n== ") {
		title, steps, _ := strings.Cut(c, "\n")
		t.Run(title, func(t *testing.T) {
			run := begin(t)
			got += "== " + title + "\n"
			for line := range strings.Lines(steps) {
				step, _, _ := strings.Cut(strings.TrimSpace(line), "->")
				if step = strings.TrimSpace(step); step == "" {
					continue
				}
				got += strings.TrimRight(fmt.Sprintf("%-*s -> %s", width, step, run(strings.Fields(step))), " ") + "\n"
			}
			got += "\n"
		})
	}
	golden.Check(t, file, strings.TrimRight(got, "\n")+"\n")
}

// run makes a step and returns what follows.
func (s *script) run(words []string) string {
	s.t.Helper()
	switch {
	case words[0] == "obeys":
		s.graph.usesXDS = true
		return ""
	case words[0] == "resolve", words[0] == "refresh":
		return s.resolveAgain(words[1], words[0] == "resolve")
	case words[0] == "inspect":
		return strings.ReplaceAll(s.inspect(), s.domain, "")
	}
	before := s.watchers()
	name, args := "", words[1:]
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch words[0] {
	case "close":
		s.graph.close()
	case "listener":
		s.graph.close()
		s.listen(name)
	case "dns":
		s.answerDNS(name, args)
	case "ambient":
		s.ambient(keys[name]+" "+args[0], failure(xdsclient.KindInvalid, args[1]))
	case "subscribe":
		s.graph.subscribe(name, 1)
	case "release":
		s.graph.subscribe(name, -1)
	case "late":
		s.tell(s.ended[keys[name]+" "+args[0]], s.resource(name, args[0], args[1:]))
	case "again":
		s.answer(keys[name]+" "+args[0], s.last)
	default:
		s.last = s.resource(words[0], name, args)
		s.answer(keys[words[0]]+" "+name, s.last)
	}
	var parts []string
	changed, after, text := s.see(), s.watchers(), strings.ReplaceAll(s.describe(), "\n", " ")
	if changed {
		parts = append(parts, text)
	}
	parts = append(parts, onlyIn("+", after, before)...)
	parts = append(parts, onlyIn("-", before, after)...)
	return strings.ReplaceAll(strings.Join(parts, "  "), s.domain, "")
}

// inspect returns what diagnostics get of the graph.
func (s *script) inspect() string {
	s.t.Helper()
	s.graph.snapshot(false)
	c := s.graph.inspect()
	return fmt.Sprintf("Listener %q, routes %q, next %q, %d clusters, waits for %d %v, error %q", c.Listener, c.Routes, c.NextRoutes, c.Clusters, c.Waits, c.WaitsFor, c.Error)
}

// watchers returns what watches each resource, and each name of DNS.
func (s *script) watchers() map[string]any {
	all := map[string]any{}
	for short, typ := range keys {
		for key, watchers := range s.watches {
			if name, ok := strings.CutPrefix(key, typ+" "); ok {
				all[short+" "+name] = watchers[0]
			}
		}
	}
	for _, name := range s.names {
		if lookup.Watched(name + s.domain) {
			all["dns "+name] = true
		}
	}
	return all
}

// onlyIn lists the watches that a has and b has not.
func onlyIn(sign string, a, b map[string]any) (list []string) {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if b[key] != a[key] {
			list = append(list, sign+key)
		}
	}
	return list
}

// answerDNS answers for a name.
func (s *script) answerDNS(name string, addresses []string) {
	s.t.Helper()
	t := s.t.(*testing.T)
	switch addresses[0] {
	case "fails":
		names.watcher(t, name+s.domain).ReportError(errors.New("failed"))
	case "empty":
		names.answer(t, name+s.domain)
	default:
		names.answer(t, name+s.domain, addresses...)
	}
}

// resolveAgain returns the names that are looked up again for a cluster, on demand or not.
func (s *script) resolveAgain(cluster string, demand bool) string {
	c, _ := s.graph.snapshot(false).clusters.Get(cluster)
	if c.ResolveNow == nil {
		return "nothing"
	}
	if demand {
		names.Change(func() { s.asked = maps.Clone(names.asked) })
		c.ResolveNow()
	}
	var asked []string
	names.Await(s.t.(*testing.T), "the names to be looked up again", func() bool {
		asked = slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return names.asked[name+s.domain] == s.asked[name+s.domain] })
		return len(asked) >= len(c.Cluster.DNSNames())
	})
	names.Change(func() { s.asked = maps.Clone(names.asked) })
	return strings.Join(asked, " ")
}

// ofDNS is a cluster whose endpoints are names of DNS.
func (s *script) ofDNS(name, kind string, hosts []string) *xdsresource.Cluster {
	kind, change, _ := strings.Cut(kind, "-")
	c := inlined(name, map[string]xdsresource.ClusterKind{"strict": strictDNS, "logical": logicalDNS}[kind])
	switch change {
	case "v6":
		c.AddressFamily = xdsresource.FamilyV6
	case "refreshed":
		c.RefreshRate = time.Nanosecond // a second is the least
	}
	for _, host := range hosts {
		address := host
		if !strings.Contains(host, ":") {
			address = host + s.domain
			if !slices.Contains(s.names, host) {
				s.names = append(s.names, host)
			}
		}
		c.Inline.Localities[0].Endpoints = append(c.Inline.Localities[0].Endpoints, xdsresource.Endpoint{Address: address, Weight: 1})
	}
	return c
}

// resource returns what a step answers a watch with.
func (s *script) resource(typ, name string, args []string) any {
	switch args[0] {
	case "deleted", "broken":
		return errors.New(args[0])
	case "missing":
		return &xdsclient.Error{Kind: xdsclient.KindDoesNotExist, Resource: name, Err: errors.New("missing")}
	case "invalid":
		return failure(xdsclient.KindInvalid, "invalid")
	case "unreachable":
		return unreachable(name)
	case "late", "late-but-there":
		return late(name, args[0] != "late")
	}
	switch {
	case typ == "lds" && args[0] == "inline":
		return &xdsresource.Listener{Name: "L", RouteConfig: routes("inline", args[1:]...)}
	case typ == "lds":
		return toRDS(args[0])
	case typ == "rds" && args[0] == "elsewhere":
		rc := routes(name, args[1:]...)
		rc.VirtualHosts[0].Domains = args[:1]
		return rc
	case typ == "rds":
		return withPlugins(name, args)
	case typ == "eds":
		return endpoints(name, args[0])
	}
	switch rest := args[1:]; args[0] {
	case "strict", "strict-refreshed", "logical", "logical-v6":
		return s.ofDNS(name, args[0], rest)
	case "static":
		return inlined(name, static, rest...)
	case "aggregate":
		return aggregate(rest...)
	case "tls":
		return securedEDS(rest[0])
	case "proxied":
		c := eds(rest[0])
		c.HTTPConnect = true
		return c
	case "accepts":
		return accepting(s.t.(*testing.T), rest[0], rest[1:]...)
	default:
		return eds(rest[0])
	}
}

// withPlugins are routes to clusters, of which those named "plugin:NAME=CONFIG" are plugins.
func withPlugins(name string, clusters []string) *xdsresource.RouteConfiguration {
	plugins := make(map[string]*xdsresource.Cluster)
	for i, c := range clusters {
		if plugin, ok := strings.CutPrefix(c, "plugin:"); ok {
			plugin, config, _ := strings.Cut(plugin, "=")
			clusters[i] = "cluster_specifier_plugin:" + plugin
			plugins[clusters[i]] = &xdsresource.Cluster{Name: clusters[i], Kind: xdsresource.ClusterPlugin, LBPolicy: "policy", LBConfig: config}
		}
	}
	rc := routes(name, clusters...)
	rc.Plugins = plugins
	return rc
}
