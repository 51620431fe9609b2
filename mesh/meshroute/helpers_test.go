package meshroute

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds/httpfilter/router"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

var frontend = Client{Service: "frontend"}

// service has one endpoint for each set of tags.
func service(name string, tags ...map[string]string) *Service {
	s := &Service{Name: name, Source: Source{File: "services.yaml", Line: 1}}
	if len(tags) == 0 {
		tags = []map[string]string{nil}
	}
	for i, set := range tags {
		s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i+1), Tags: set})
	}
	return s
}

func mustBuild(t testing.TB, in Input, previous *Mesh) *Mesh {
	t.Helper()
	m, err := Build(in, previous)
	if err != nil {
		t.Fatalf("Build:\n%v", err)
	}
	return m
}

// accepted builds a mesh, all of whose resources Envoy and dynxds accept.
func accepted(t testing.TB, in Input, previous *Mesh) *Mesh {
	t.Helper()
	m := mustBuild(t, in, previous)
	made := slices.Collect(maps.Values(m.servers))
	for _, r := range m.services.All {
		made = append(made, r.resources()...)
	}
	for _, d := range m.destinations.All {
		made = append(made, d.resources()...)
	}
	seen := make(map[string]bool)
	for _, r := range made {
		if seen[r.Key()] {
			t.Errorf("%s %s %v is there twice", r.TypeURL, r.Name, r.Parameters)
		}
		if seen[r.Key()] = true; m.Resource(r.Key()) == nil || !m.Resource(r.Key()).Equal(r) {
			t.Errorf("the mesh has %v, want %v", m.Resource(r.Key()), r)
		}
		checkResource(t, r)
	}
	if all := m.Resources(); len(all) != len(made) {
		t.Errorf("the mesh has %d resources, want %d", len(all), len(made))
	}
	return m
}

// CheckResource is checkResource, for the tests outside of the package.
var CheckResource = checkResource

// services have one endpoint each.
func services(names ...string) []*Service {
	var list []*Service
	for _, name := range names {
		list = append(list, service(name))
	}
	return list
}

// validator is what protoc-gen-validate gives to messages: the rules that Envoy
// checks.
type validator interface{ ValidateAll() error }

// checkResource fails the test unless Envoy and dynxds accept the resource.
func checkResource(t testing.TB, r *Resource) any {
	t.Helper()
	if (r.Message == nil) == (r.Err == nil) {
		t.Fatalf("%s has message %v and error %v", r.Name, r.Message, r.Err)
	}
	if r.Message == nil {
		return nil
	}
	if err := r.Message.(validator).ValidateAll(); err != nil {
		t.Errorf("%s is invalid for Envoy: %v", r.Name, err)
	}
	if l, ok := r.Message.(*listenerpb.Listener); ok && l.GetAddress() != nil {
		return nil // for servers, which dynxds is not
	}
	packed, err := anypb.New(r.Message)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]*xdsclient.ResourceType{
		ListenerType: xdsresource.ListenerType, RouteConfigurationType: xdsresource.RouteConfigurationType,
		ClusterType: xdsresource.ClusterType, EndpointsType: xdsresource.EndpointsType,
	}
	trusted := xdsclient.DecodeOptions{Server: &bootstrap.Server{Features: []bootstrap.Feature{bootstrap.FeatureTrustedXDSServer}}}
	value, err := types[r.TypeURL].Decode(packed, trusted)
	if err != nil {
		t.Fatalf("dynxds does not accept %s:\n%v\n%v", r.Name, err, r.Message)
	}
	if name := string(types[r.TypeURL].NameOf(packed.GetValue())); name != r.Name {
		t.Errorf("the name in the message is %q, want %q", name, r.Name)
	}
	return value
}

// hostFor returns the routes that dynxds makes of a resource.
func hostFor(t testing.TB, r *Resource) *xdsresource.VirtualHost {
	t.Helper()
	if r == nil || r.Err != nil {
		t.Fatalf("there are no routes: %v", r)
	}
	return checkResource(t, r).(*xdsresource.RouteConfiguration).VirtualHost("any")
}

// clusterOf returns the cluster of a route to a single one.
func clusterOf(t testing.TB, r *xdsresource.Route) string {
	t.Helper()
	if r == nil {
		return ""
	}
	forward, ok := r.Action.(*xdsresource.Forward)
	if !ok || len(forward.Clusters) != 1 {
		t.Fatalf("the route does not lead to one cluster: %+v", r.Action)
	}
	return forward.Clusters[0].Name
}

func exactSAN(name string) []*matcherpb.StringMatcher {
	return []*matcherpb.StringMatcher{{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: name}}}
}
