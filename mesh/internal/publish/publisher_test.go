package publish_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/folder/foldertest"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const services = foldertest.Services

// policy sends the requests of some clients to a version of backend.
func policy(name, targetRef, version string) string {
	return foldertest.Policy(name, targetRef, `
    - matches: [{path: {type: Prefix, value: /}}]
      backendRefs: [{kind: MeshServiceSubset, name: backend, weight: 1, tags: {version: `+version+`}}]
`)
}

// site is a folder, and the store that it is published to.
type site struct {
	t         *testing.T
	dir       string
	reader    *folder.Reader
	store     *controlplane.Store
	publisher *publish.Publisher
	// refreshed counts how often streams were to ask again.
	refreshed atomic.Int32
}

func newSite(t *testing.T, authority string) *site {
	return newSiteWith(t, publish.Options{Authority: authority})
}

func newSiteWith(t *testing.T, opts publish.Options) *site {
	s := &site{t: t, dir: t.TempDir(), store: controlplane.NewStore()}
	s.reader = folder.New(s.dir)
	s.publisher = publish.New(s.store, opts, publish.Streams{Refresh: func() { s.refreshed.Add(1) }})
	return s
}

// write writes files, each by its name and its text.
func (s *site) write(files ...string) {
	s.t.Helper()
	for i := 0; i < len(files); i += 2 {
		cmdtest.Write(s.t, s.dir, files[i], files[i+1])
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

// tryPublish publishes the folder as it is.
func (s *site) tryPublish() (publish.Summary, error) {
	s.t.Helper()
	content, err := s.reader.Settled(s.t.Context())
	xdstest.NoError(s.t, err)
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

// routes fails the test unless a client gets the routes of a name, to this cluster, or the error or nothing in
// their place.
func (s *site) routes(when, name string, node *corepb.Node, want string) {
	s.t.Helper()
	if got := s.cluster(name, node); got != want {
		s.t.Errorf("%s: %v gets %s of %s, want %s", when, node, got, name, want)
	}
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

func TestEachClientGetsItsVariant(t *testing.T) {
	t.Parallel()
	s := newSite(t, "mesh")
	s.change("services.yaml", services, "owner.yaml", policy("owner", "{kind: Mesh}", "v1"),
		"consumer.yaml", policy("consumer", "{kind: MeshServiceSubset, name: frontend, tags: {version: v2}}", "v2"))
	for _, test := range []struct {
		client *corepb.Node
		want   string
	}{
		{node("frontend", "v2"), "backend;version=v2"},
		{node("frontend", "v1"), "backend;version=v1"},
		{node("batch", "v2"), "backend;version=v1"},
		{nil, "backend;version=v1"},
	} {
		s.routes("by plain names", "backend", test.client, test.want)
		s.routes("under the authority", named, test.client, "xdstp://mesh/envoy.config.cluster.v3.Cluster/"+test.want)
	}
}

func TestOnlyChangesArePublished(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	first := s.change("services.yaml", services, "owner.yaml", policy("owner", "{kind: Mesh}", "v1"))
	if again := s.change(); again.Version != first.Version || again.Changed+again.Removed != 0 {
		t.Errorf("publishing the same again gave %+v, want nothing", again)
	}
	listener, routes := s.store.Get(meshroute.ListenerType, "backend"), s.store.Get(meshroute.RouteConfigurationType, "backend")
	changed := s.change("owner.yaml", policy("owner", "{kind: Mesh}", "v2"))
	if changed.Version != first.Version+1 {
		t.Errorf("the change gave %+v, want version %d", changed, first.Version+1)
	}
	s.routes("after the change", "backend", nil, "backend;version=v2")
	if s.store.Get(meshroute.ListenerType, "backend") != listener {
		t.Error("the Listener is another one, though no policy is about it")
	}
	if s.store.Get(meshroute.RouteConfigurationType, "backend") == routes {
		t.Error("the routes are the same")
	}
}

func TestConstraintsAreRefreshedOnlyIfTheTagsChange(t *testing.T) {
	t.Parallel()
	s := newSite(t, "mesh")
	s.change("services.yaml", services, "owner.yaml", policy("owner", "{kind: Mesh}", "v1"))
	before := s.refreshed.Load()
	s.change("owner.yaml", policy("owner", "{kind: Mesh}", "v2"))
	if got := s.refreshed.Load(); got != before {
		t.Errorf("constraints were refreshed %d times for a change that does not concern tags, want 0", got-before)
	}
	s.change("consumer.yaml", policy("consumer", "{kind: MeshService, name: frontend}", "v1"))
	if got := s.refreshed.Load(); got != before+1 {
		t.Errorf("constraints were refreshed %d times, want once, as policies now select by service", got-before)
	}
}

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

// A folder's resources exist until they are deleted, and do not replace those of a service.
func TestWrittenResources(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.change("services.yaml", services, "other.yaml", resource("other", ""))
	s.routes("written", "other", nil, "written")
	s.write("clash.yaml", resource("backend", ""))
	_, err := s.tryPublish()
	cmdtest.ErrorHas(t, "a conflict", err, "clash.yaml:2: resource backend of type")
	s.routes("after the faulty update", "backend", nil, "backend")
	s.change("clash.yaml", resource("backend", "canary: 'yes'"), "other.yaml", "")
	s.routes("deleted", "other", nil, "nothing")
	s.change("clash.yaml", resource("backend", ""), "services.yaml", "")
	s.routes("in place of the deleted service", "backend", nil, "written")
	s.change("clash.yaml", "", "services.yaml", services)
	s.routes("with the service again", "backend", nil, "backend")
}

// A reference to a missing service is a report with file and line, not an error.
func TestReportsReachTheCaller(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	missing := strings.Replace(policy("owner", "{kind: Mesh}", "v1"), "kind: MeshServiceSubset, name: backend", "kind: MeshServiceSubset, name: nobody", 1)
	summary := s.change("services.yaml", services, "owner.yaml", missing)
	if !slices.ContainsFunc(summary.Reports, func(r meshroute.Report) bool {
		return r.Severity == meshroute.Error && strings.Contains(r.String(), "nobody") && strings.Contains(r.String(), "owner.yaml:")
	}) {
		t.Errorf("the reports are %v, want one of the missing service", summary.Reports)
	}
	if _, got := s.store.Choose(meshroute.ClusterType, "nobody;version=v1", dynparam.Constraints{}); got.Code() != codes.NotFound {
		t.Errorf("clients get %v in place of the Cluster, want NOT_FOUND with the reason", got)
	}
	s.routes("for a client that knows no errors: the Cluster without endpoints", "backend", nil, "nobody;version=v1;no-such-service")
}

// The tags of the node choose among the variants of a resource in the folder (xRFC TP2,
// "Migrating From Node Metadata"); a client without the tag gets any.
func TestWrittenVariantsAreChosenByNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.change("v1.yaml", resource("other", "version: v1"),
		"v2.yaml", strings.Replace(resource("other", "version: v2"), "cluster: written", "cluster: second", 1))
	for version, want := range map[string]string{"v1": "written", "v2": "second", "v3": "nothing"} {
		s.routes("by the tag", "other", node("a", version), want)
	}
	if got := s.cluster("other", node("a", "")); got == "nothing" {
		t.Error("a client without a version gets nothing")
	}
	if got := s.refreshed.Load(); got != 1 {
		t.Errorf("constraints were refreshed %d times, want once", got)
	}
	s.change("v1.yaml", "")
	s.routes("without its variant", "other", node("a", "v1"), "nothing")
}

// Lines that move change what names them, or nothing.
func TestCommentsChangeOnlySources(t *testing.T) {
	t.Parallel()
	consumer := policy("consumer", "{kind: MeshService, name: frontend}", "v2")
	for _, test := range []struct {
		file, text string
		changed    int
	}{
		// The consumer's variant.
		{"consumer.yaml", "# changed\n" + consumer, 1},
		// But for the routes, which name policies.
		{"services.yaml", "# changed\n" + services, 9},
	} {
		for _, noSources := range []bool{false, true} {
			s := newSiteWith(t, publish.Options{NoSources: noSources})
			s.change("services.yaml", services, "owner.yaml", policy("owner", "{kind: Mesh}", "v1"), "consumer.yaml", consumer)
			want := test.changed
			if noSources {
				want = 0
			}
			if got := s.change(test.file, test.text); got.Changed != want || got.Removed != 0 {
				t.Errorf("a comment in %s, without sources %t: %d changed and %d removed, want %d and 0", test.file, noSources, got.Changed, got.Removed, want)
			}
		}
	}
}

// A resource without parameters conflicts with the same name of a service, in any spelling,
// even if policies give that one variants.
func TestAWrittenResourceIsNotBesideVariants(t *testing.T) {
	t.Parallel()
	for authority, name := range map[string]string{"": "backend", "a!b": "xdstp://a%21b/envoy.config.route.v3.RouteConfiguration/backend"} {
		s := newSite(t, authority)
		s.write("services.yaml", services, "consumer.yaml", policy("consumer", "{kind: MeshService, name: frontend}", "v2"),
			"clash.yaml", resource(name, ""))
		_, err := s.tryPublish()
		cmdtest.ErrorHas(t, "authority "+authority, err, "a service has this resource already")
	}
}

func TestTooManyTags(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	for i := range 121 {
		s.write(fmt.Sprintf("%d.yaml", i), resource("other", fmt.Sprintf("tag%d: a", i)))
	}
	_, err := s.tryPublish()
	cmdtest.ErrorHas(t, "too many tags", err, "121 tags, more than 120")
}

func TestSummaryCountsChangedVariants(t *testing.T) {
	t.Parallel()
	consumer := func(version string) string {
		return policy("consumer", "{kind: MeshService, name: frontend}", version)
	}
	for _, test := range []struct {
		name, file, text string
		changed, removed int
	}{
		{"a comment at the end", "consumer.yaml", consumer("v2") + "# changed\n", 0, 0},
		{"a comment in resources", "other.yaml", "# changed\n" + resource("other", ""), 0, 0},
		// The consumer's variant; the cluster and endpoints of one subset are added, those of another removed.
		{"a consumer's policy", "consumer.yaml", consumer("v3"), 3, 2},
		// One variant without parameters replaces the default and the consumer's; the cluster and endpoints of
		// the subset v2 are removed.
		{"a policy that is deleted", "consumer.yaml", "", 1, 4},
		{"an endpoint", "services.yaml", strings.Replace(services, "10.0.0.2", "10.0.0.3", 1), 2, 0},
		{"a resource", "other.yaml", strings.Replace(resource("other", ""), "prefix", "path", 1), 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "")
			first := s.change("services.yaml", services, "owner.yaml", policy("owner", "{kind: Mesh}", "v1"),
				"consumer.yaml", consumer("v2"), "other.yaml", resource("other", ""))
			got := s.change(test.file, test.text)
			if got.Changed != test.changed || got.Removed != test.removed {
				t.Errorf("%d changed and %d removed, want %d and %d", got.Changed, got.Removed, test.changed, test.removed)
			}
			if published := got.Version != first.Version; published != (test.changed+test.removed > 0) {
				t.Errorf("the store went from version %d to %d", first.Version, got.Version)
			}
		})
	}
}
