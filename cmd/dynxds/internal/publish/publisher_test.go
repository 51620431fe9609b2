package publish_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder/foldertest"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/publish"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/meshroute"
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

func (s *site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// tryPublish publishes the folder as it is.
func (s *site) tryPublish() (publish.Summary, error) {
	s.t.Helper()
	content, err := s.reader.Read()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.publisher.Publish(s.t.Context(), content)
}

func (s *site) publish() publish.Summary {
	s.t.Helper()
	summary, err := s.tryPublish()
	if err != nil {
		s.t.Fatal(err)
	}
	return summary
}

// clusters returns the cluster that a client's requests to backend go to, or the
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
	if err := resource.Any().UnmarshalTo(routes); err != nil {
		s.t.Fatal(err)
	}
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

func TestEachClientGetsItsVariant(t *testing.T) {
	t.Parallel()
	s := newSite(t, "mesh")
	s.write("services.yaml", services)
	s.write("owner.yaml", policy("owner", "{kind: Mesh}", "v1"))
	s.write("consumer.yaml", policy("consumer", "{kind: MeshServiceSubset, name: frontend, tags: {version: v2}}", "v2"))
	s.publish()
	for _, test := range []struct {
		client *corepb.Node
		want   string
	}{
		{node("frontend", "v2"), "backend;version=v2"},
		{node("frontend", "v1"), "backend;version=v1"},
		{node("batch", "v2"), "backend;version=v1"},
		{nil, "backend;version=v1"},
	} {
		if got := s.cluster("backend", test.client); got != test.want {
			t.Errorf("%v gets %s, want %s", test.client, got, test.want)
		}
		if got := s.cluster(named, test.client); !strings.HasSuffix(got, test.want) || !strings.HasPrefix(got, "xdstp://mesh/") {
			t.Errorf("%v gets %s under the authority, want that of %s", test.client, got, test.want)
		}
	}
}

func TestOnlyChangesArePublished(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.write("services.yaml", services)
	s.write("owner.yaml", policy("owner", "{kind: Mesh}", "v1"))
	first := s.publish()
	if again := s.publish(); again.Version != first.Version || again.Changed+again.Removed != 0 {
		t.Errorf("publishing the same again gave %+v, want nothing", again)
	}
	listener, routes := s.store.Get(meshroute.ListenerType, "backend"), s.store.Get(meshroute.RouteConfigurationType, "backend")
	s.write("owner.yaml", policy("owner", "{kind: Mesh}", "v2"))
	changed := s.publish()
	if changed.Version != first.Version+1 || s.cluster("backend", nil) != "backend;version=v2" {
		t.Errorf("the change gave %+v and cluster %s", changed, s.cluster("backend", nil))
	}
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
	s.write("services.yaml", services)
	s.write("owner.yaml", policy("owner", "{kind: Mesh}", "v1"))
	s.publish()
	before := s.refreshed.Load()
	s.write("owner.yaml", policy("owner", "{kind: Mesh}", "v2"))
	s.publish()
	if got := s.refreshed.Load(); got != before {
		t.Errorf("streams asked again %d times for a change that does not concern tags", got-before)
	}
	s.write("consumer.yaml", policy("consumer", "{kind: MeshService, name: frontend}", "v1"))
	s.publish()
	if got := s.refreshed.Load(); got != before+1 {
		t.Errorf("constraints were refreshed %d times, want once, as policies now select by service", got-before)
	}
}

func TestDenial(t *testing.T) {
	t.Parallel()
	s := newSite(t, "mesh")
	s.write("services.yaml", services)
	s.write("denial.yaml", "kind: Denial\nclients: {kind: MeshService, name: batch}\nto: {kind: MeshService, name: backend}\nreason: no\n")
	s.publish()
	for _, name := range []string{"backend", named} {
		if got := s.cluster(name, node("batch", "v1")); got != codes.PermissionDenied.String() {
			t.Errorf("batch gets %s of %s, want PERMISSION_DENIED", got, name)
		}
		if got := s.cluster(name, node("frontend", "v1")); !strings.HasSuffix(got, "backend") {
			t.Errorf("frontend gets %s of %s, want its routes", got, name)
		}
	}
	s.write("denial.yaml", "")
	s.publish()
	if got := s.cluster("backend", node("batch", "v1")); got != "backend" {
		t.Errorf("without the denial batch gets %s", got)
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
	s.write("services.yaml", services)
	s.write("other.yaml", resource("other", ""))
	s.publish()
	if got := s.cluster("other", nil); got != "written" {
		t.Errorf("got %s, want what was written", got)
	}
	s.write("clash.yaml", resource("backend", ""))
	_, err := s.tryPublish()
	if err == nil || !strings.Contains(err.Error(), "clash.yaml:2: resource backend of type") {
		t.Errorf("got error %v, want one about the resource in clash.yaml", err)
	}
	if got := s.cluster("backend", nil); got != "backend" {
		t.Errorf("got %s after the faulty update, want what was there", got)
	}
	s.write("clash.yaml", resource("backend", "canary: 'yes'"))
	s.write("other.yaml", "")
	s.publish()
	if got := s.cluster("other", nil); got != "nothing" {
		t.Errorf("got %s of the deleted resource, want nothing", got)
	}
	// The service goes, and what was written takes its name.
	s.write("clash.yaml", resource("backend", ""))
	s.write("services.yaml", "")
	s.publish()
	if got := s.cluster("backend", nil); got != "written" {
		t.Errorf("got %s, want what was written", got)
	}
	s.write("clash.yaml", "")
	s.write("services.yaml", services)
	s.publish()
	if got := s.cluster("backend", nil); got != "backend" {
		t.Errorf("got %s, want what the service makes", got)
	}
}

// A reference to a missing service is a report with file and line, not an error.
func TestReportsReachTheCaller(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.write("services.yaml", services)
	s.write("owner.yaml", strings.Replace(policy("owner", "{kind: Mesh}", "v1"), "kind: MeshServiceSubset, name: backend", "kind: MeshServiceSubset, name: nobody", 1))
	summary := s.publish()
	var found bool
	for _, r := range summary.Reports {
		found = found || r.Severity == meshroute.Error && strings.Contains(r.String(), "nobody") && strings.Contains(r.String(), "owner.yaml:")
	}
	if !found {
		t.Errorf("the reports are %v, want one of the missing service", summary.Reports)
	}
	if _, got := s.store.Choose(meshroute.ClusterType, "nobody;version=v1", dynparam.Constraints{}); got.Code() != codes.NotFound {
		t.Errorf("clients get %v in place of the Cluster, want NOT_FOUND with the reason", got)
	}
	if got := s.cluster("backend", nil); got != "nobody;version=v1;no-such-service" {
		t.Errorf("requests of a client that knows no errors go to %s, want the Cluster without endpoints", got)
	}
}

// The tags of the node choose among the variants of a resource in the folder (xRFC TP2,
// "Migrating From Node Metadata"); a client without the tag gets any.
func TestWrittenVariantsAreChosenByNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.write("v1.yaml", resource("other", "version: v1"))
	s.write("v2.yaml", strings.Replace(resource("other", "version: v2"), "cluster: written", "cluster: second", 1))
	s.publish()
	for version, want := range map[string]string{"v1": "written", "v2": "second", "v3": "nothing"} {
		if got := s.cluster("other", node("a", version)); got != want {
			t.Errorf("a client of version %s gets %s, want %s", version, got, want)
		}
	}
	if got := s.cluster("other", node("a", "")); got == "nothing" {
		t.Error("a client that says no version gets nothing")
	}
	if got := s.refreshed.Load(); got != 1 {
		t.Errorf("streams asked again %d times, want once", got)
	}
	s.write("v1.yaml", "")
	s.publish()
	if got := s.cluster("other", node("a", "v1")); got != "nothing" {
		t.Errorf("a client of version v1 gets %s, want nothing, as its variant is gone", got)
	}
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
			s.write("services.yaml", services)
			s.write("owner.yaml", policy("owner", "{kind: Mesh}", "v1"))
			s.write("consumer.yaml", consumer)
			s.publish()
			s.write(test.file, test.text)
			want := test.changed
			if noSources {
				want = 0
			}
			if got := s.publish(); got.Changed != want || got.Removed != 0 {
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
		s.write("services.yaml", services)
		s.write("consumer.yaml", policy("consumer", "{kind: MeshService, name: frontend}", "v2"))
		s.write("clash.yaml", resource(name, ""))
		if _, err := s.tryPublish(); err == nil || !strings.Contains(err.Error(), "a service has this resource already") {
			t.Errorf("with authority %q: got error %v, want that the service has %s already", authority, err, name)
		}
	}
}

func TestTooManyTags(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	for i := range 121 {
		s.write(fmt.Sprintf("%d.yaml", i), resource("other", fmt.Sprintf("tag%d: a", i)))
	}
	if _, err := s.tryPublish(); err == nil || !strings.Contains(err.Error(), "121 tags, more than 120") {
		t.Errorf("got error %v, want that there are too many tags", err)
	}
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
		// The consumer's variant; the cluster and endpoints of one subset come, those of
		// another go.
		{"a consumer's policy", "consumer.yaml", consumer("v3"), 3, 2},
		// The default and the consumer's variant give way to one without parameters;
		// the cluster and endpoints of the subset v2 go.
		{"a policy that goes", "consumer.yaml", "", 1, 4},
		{"an endpoint", "services.yaml", strings.Replace(services, "10.0.0.2", "10.0.0.3", 1), 2, 0},
		{"a resource", "other.yaml", strings.Replace(resource("other", ""), "prefix", "path", 1), 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "")
			s.write("services.yaml", services)
			s.write("owner.yaml", policy("owner", "{kind: Mesh}", "v1"))
			s.write("consumer.yaml", consumer("v2"))
			s.write("other.yaml", resource("other", ""))
			first := s.publish()
			s.write(test.file, test.text)
			got := s.publish()
			if got.Changed != test.changed || got.Removed != test.removed {
				t.Errorf("%d changed and %d removed, want %d and %d", got.Changed, got.Removed, test.changed, test.removed)
			}
			if published := got.Version != first.Version; published != (test.changed+test.removed > 0) {
				t.Errorf("the store went from version %d to %d", first.Version, got.Version)
			}
		})
	}
}
