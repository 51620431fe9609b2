package publish_test

import (
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/folder/foldertest"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// policy sends the requests of some clients to a version of backend.
func policy(name, targetRef, version string) string {
	return foldertest.Policy(name, targetRef, `
    - matches: [{path: {type: Prefix, value: /}}]
      backendRefs: [{kind: MeshServiceSubset, name: backend, weight: 1, tags: {version: `+version+`}}]
`)
}

// site are files, and the store that they are published to.
type site struct {
	t         testing.TB
	files     map[string]string
	parser    folder.Parser
	separate  bool
	store     *controlplane.Store
	publisher *publish.Publisher
	// refreshed counts how often streams were to ask again.
	refreshed atomic.Int32
}

func newSite(t testing.TB, opts publish.Options) *site {
	s := &site{t: t, parser: folder.Parser{Dir: "/mesh"}, files: map[string]string{}, store: controlplane.NewStore()}
	opts.Refresh = func() { s.refreshed.Add(1) }
	s.publisher = publish.New(s.store, opts)
	return s
}

// write writes files, each by its name and its text.
func (s *site) write(files ...string) {
	for i := 0; i < len(files); i += 2 {
		s.files[files[i]] = files[i+1]
	}
}

// change writes files, each by its name and its text, and publishes the folder.
func (s *site) change(files ...string) publish.Summary {
	s.t.Helper()
	s.write(files...)
	summary, err := s.tryPublish()
	xdstest.NoError(s.t, err)
	return summary
}

// tryPublish publishes the files as they are.
func (s *site) tryPublish() (publish.Summary, error) {
	s.t.Helper()
	content, err := s.parser.Parse(maps.Clone(s.files))
	xdstest.NoError(s.t, err)
	content.Separate = s.separate
	return s.publisher.Publish(s.t.Context(), content)
}

// cluster returns the cluster that a client's requests to backend go to, or the
// code of the error in its place.
func (s *site) cluster(name string, node *corepb.Node) string {
	s.t.Helper()
	constraints := s.publisher.NodeConstraints(node).For(meshroute.RouteConfigurationType)
	resource, st := s.store.Choose(meshroute.RouteConfigurationType, name, constraints)
	if st != nil {
		return st.Code().String()
	}
	if resource == nil {
		return "nothing"
	}
	routes := &routepb.RouteConfiguration{}
	xdstest.NoError(s.t, resource.Any().UnmarshalTo(routes))
	return routes.GetVirtualHosts()[0].GetRoutes()[0].GetRoute().GetCluster()
}

// node is a client of a service with a version.
func node(service, version string) *corepb.Node {
	metadata, err := structpb.NewStruct(map[string]any{"service": service, "version": version})
	if err != nil {
		panic(err)
	}
	return &corepb.Node{Id: "a", Metadata: metadata}
}

const named = "xdstp://mesh/envoy.config.route.v3.RouteConfiguration/backend"

const written = `
kind: Resource
dynamicParameters: {%s}
resource:
  "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: NAME
  virtual_hosts: [{name: a, domains: ["*"], routes: [{match: {prefix: ""}, route: {cluster: written}}]}]
`

func resource(name, parameters string) string {
	return strings.NewReplacer("NAME", name, "%s", parameters).Replace(written)
}
