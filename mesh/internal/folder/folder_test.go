package folder_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// dir is a folder of a test.
type dir struct {
	t    *testing.T
	path string
}

// newDir returns a folder with files, each by its name and its text.
func newDir(t *testing.T, files ...string) dir {
	d := dir{t, t.TempDir()}
	for i := 0; i < len(files); i += 2 {
		d.write(files[i], files[i+1])
	}
	return d
}

func (d dir) write(name, text string) {
	d.t.Helper()
	cmdtest.Write(d.t, d.path, name, text)
}

func (d dir) remove(name string) {
	d.t.Helper()
	xdstest.NoError(d.t, os.RemoveAll(filepath.Join(d.path, name)))
}

// content reads the folder, which is valid.
func (d dir) content() *folder.Content {
	d.t.Helper()
	return read(d.t, folder.New(d.path))
}

// rejected fails the test unless reading the folder fails, with the texts in the error. what says what is in it.
func (d dir) rejected(what string, texts ...string) {
	d.t.Helper()
	_, err := folder.New(d.path).Read()
	cmdtest.ErrorHas(d.t, what, err, texts...)
}

// read reads a valid folder.
func read(t *testing.T, r *folder.Reader) *folder.Content {
	t.Helper()
	c, err := r.Read()
	xdstest.NoError(t, err)
	return c
}

const (
	frontend = "kind: Service\nname: frontend\n"
	backend  = `
kind: Service
name: backend
endpoints:
- address: 10.0.0.1:8080
  hostname: one.example.com
  locality: {region: eu, zone: a, subZone: rack-1}
  priority: 1
  weight: 3
  health: Draining
  tags: {version: v1}
- address: "[2001:db8::1]:8080"
filters:
- name: fault
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
    abort: {grpc_status: 14, percentage: {numerator: 10}}
`
	policy = `
kind: MeshHTTPRoute
metadata: {name: owner}
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - matches: [{path: {type: Prefix, value: /v1}}]
      backendRefs: [{kind: MeshServiceSubset, name: backend, weight: 1, tags: {version: v1}}]
`
	resource = `
kind: Resource
dynamicParameters: {env: prod}
resource:
  "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: payments
  connect_timeout: 5s
`
)

func TestReadsEveryKind(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	text := strings.Join([]string{frontend, backend, policy, resource}, "---\n")
	d.write("all.yaml", text)
	c := d.content()

	if len(c.Services) != 2 || len(c.Policies) != 1 || len(c.Resources) != 1 {
		t.Fatalf("got %d services, %d policies, %d resources, want 2, 1, 1", len(c.Services), len(c.Policies), len(c.Resources))
	}
	at := func(line string) meshroute.Source {
		return meshroute.Source{File: filepath.Join(d.path, "all.yaml"), Line: 1 + slices.Index(strings.Split(text, "\n"), line)}
	}
	want := []meshroute.Endpoint{
		{
			Source:  at("- address: 10.0.0.1:8080"),
			Address: "10.0.0.1:8080", Hostname: "one.example.com", Priority: 1, Weight: 3, Health: corepb.HealthStatus_DRAINING,
			Locality: meshroute.Locality{Region: "eu", Zone: "a", SubZone: "rack-1"}, Tags: map[string]string{"version": "v1"},
		},
		{Source: at(`- address: "[2001:db8::1]:8080"`), Address: "[2001:db8::1]:8080"},
	}
	if got := c.Services[1].FiltersSource; got != at("- name: fault") || c.Dir != d.path {
		t.Errorf("the filters are at %v of the folder %s, want %v of %s", got, c.Dir, at("- name: fault"), d.path)
	}
	xdstest.Equal(t, "the endpoints", want, c.Services[1].Endpoints)
	if filters := c.Services[1].Filters; len(filters) != 1 || filters[0].GetName() != "fault" || filters[0].GetTypedConfig() == nil {
		t.Errorf("the filters are %v, want one of name fault with its configuration", filters)
	}
	if p := c.Policies[0]; p.Name != "owner" || p.Source.Line == 0 {
		t.Errorf("the policy is %q at %v, want owner with its line", p.Name, p.Source)
	}
	d.write("all.yaml", strings.Replace(text, "kind: Resource\n", "kind: Resource\nname: null\n", 1))
	if got := d.content().Resources[0].Name; got != "payments" {
		t.Errorf("the name is %q with a null, want that in the message", got)
	}
	r, cluster := c.Resources[0], &clusterpb.Cluster{}
	xdstest.NoError(t, r.Any.UnmarshalTo(cluster))
	if r.Name != "payments" || r.Parameters["env"] != "prod" || cluster.GetConnectTimeout().GetSeconds() != 5 {
		t.Errorf("the resource is %v with %v, want payments for env=prod with its timeout", r, cluster)
	}
}

// Every field of tls, and its defaults.
func TestReadsTLS(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tls  string
		want *meshroute.TLS
	}{
		{"", nil},
		{"tls: {mode: off, providers: {roots: system}}", &meshroute.TLS{Mode: meshroute.TLSOff, Identity: "default"}},
		{"tls: {mode: simple}", &meshroute.TLS{Mode: meshroute.TLSSimple, Identity: "default", Roots: "default"}},
		{"tls: {mode: mutual, providers: {roots: ca}}", &meshroute.TLS{Mode: meshroute.TLSMutual, Identity: "default", Roots: "ca"}},
		{"tls: {mode: mutual, providers: {identity: me, roots: system}, sni: b.example.com, subjectAltNames: [a, {exact: b, ignoreCase: true}, {prefix: c}, {suffix: d}, {contains: e}, {regex: f.*}]}",
			&meshroute.TLS{Mode: meshroute.TLSMutual, Identity: "me", SNI: "b.example.com", SANs: []*matcherpb.StringMatcher{
				{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "a"}},
				{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "b"}, IgnoreCase: true},
				{MatchPattern: &matcherpb.StringMatcher_Prefix{Prefix: "c"}},
				{MatchPattern: &matcherpb.StringMatcher_Suffix{Suffix: "d"}},
				{MatchPattern: &matcherpb.StringMatcher_Contains{Contains: "e"}},
				{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: "f.*"}}},
			}}},
	} {
		t.Run(test.tls, func(t *testing.T) {
			t.Parallel()
			d := newDir(t, "a.yaml", frontend+test.tls)
			xdstest.Equal(t, "tls", test.want, d.content().Services[0].TLS, protocmp.Transform(), cmpopts.IgnoreTypes(meshroute.Source{}))
		})
	}
}

func TestIgnoresOtherFiles(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	d.write("a.yaml", frontend)
	d.write("b.yml", "kind: Service\nname: b\n")
	d.write("c.json", `{"kind": "Service", "name": "c"}`)
	d.write("notes.txt", "kind: nonsense")
	d.write(".hidden.yaml", "kind: nonsense")
	xdstest.NoError(t, os.Mkdir(filepath.Join(d.path, "folder.yaml"), 0o700))
	c := d.content()
	if len(c.Services) != 3 || c.Files != 3 {
		t.Errorf("got %d services of %d files, want 3 of 3", len(c.Services), c.Files)
	}
}

// The content of an unchanged folder or file stays the same pointer.
func TestReadsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", frontend, "b.yaml", backend)
	r := folder.New(d.path)
	first := read(t, r)
	if second := read(t, r); second != first {
		t.Error("nothing changed, and the content is another one")
	}
	// The same text written again, with another time, is no change.
	d.write("a.yaml", frontend)
	later := time.Now().Add(time.Hour)
	xdstest.NoError(t, os.Chtimes(filepath.Join(d.path, "a.yaml"), later, later))
	if second := read(t, r); second != first {
		t.Error("the text did not change, and the content is another one")
	}
	d.write("b.yaml", strings.Replace(backend, "10.0.0.1", "10.0.0.2", 1))
	changed := read(t, r)
	if got := changed.Services[1].Endpoints[0].Address; got != "10.0.0.2:8080" {
		t.Errorf("the address is %s, want the new one", got)
	}
	if changed.Services[0] != first.Services[0] {
		t.Error("the service of the file that did not change is another one")
	}
	d.remove("b.yaml")
	if c, err := r.Settled(t.Context()); err != nil || len(c.Services) != 1 {
		t.Errorf("got %v, %v after the deletion of a file, want 1 service", c, err)
	}
}

// A change within a tick of the file system's clock is noticed even if it keeps the size.
func TestNoticesAChangeThatTheClockMisses(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	path, written := filepath.Join(d.path, "a.yaml"), time.Now().Add(-time.Second)
	write := func(name string) {
		d.inPlace("a.yaml", "kind: Service\nname: "+name+"\n")
		xdstest.NoError(t, os.Chtimes(path, written, written))
	}
	r := folder.New(d.path)
	for _, name := range []string{"aa", "bb", "cc"} {
		write(name)
		if got := read(t, r).Services[0].Name; got != name {
			t.Errorf("the service is %q, want %q", got, name)
		}
	}
}

// The error has each mistake with file and line, and is the same value until something changes.
func TestReportsEveryFault(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"no kind", "name: a", "a.yaml:1: the document has no kind; add kind, which can be Service, MeshHTTPRoute, GRPCRoute, HTTPRoute, Resource"},
		{"a list of documents", "- kind: Service\n  name: a", "a.yaml:1: expected an object, found a list"},
		{"text", "kind Service", `a.yaml:1: expected an object, found the string "kind Service"`},
		{"an unknown kind", "kind: Servce\nname: a", `a.yaml:1: kind: unknown value "Servce"; did you mean "Service"?`},
		{"a Service of Kubernetes", "apiVersion: v1\nkind: Service\nmetadata: {name: greeter, namespace: shop}\nspec: {ports: [{port: 80}]}",
			`a.yaml:1: this is a Service of Kubernetes, which does not say where its endpoints are; replace it by "kind: Service" with "name: greeter.shop" and "endpoints: [{address: HOST:PORT}]", or run dynxds-kubernetes`},
		{"a kind of another system", "kind: EndpointSlice", `a.yaml:1: kind: unknown value "EndpointSlice"; it can be Service, MeshHTTPRoute, GRPCRoute, HTTPRoute, Resource`},
		{"an unknown field", frontend + "endpoint: []", `a.yaml:3: unknown field "endpoint"; did you mean "endpoints"?`},
		{"no name", "kind: Service", `the field "name" is missing`},
		{"an address without a port", frontend + "endpoints: [{address: a}]", `endpoints[0].address: "a" is not an address; write it as host:port`},
		{"a port out of range", frontend + "endpoints: [{address: 'a:65536'}]", `"65536" is not a port`},
		{"an address twice", frontend + "endpoints: [{address: 'a:1'}, {address: 'a:1'}]", "endpoints[1].address: the address is that of endpoints[0]"},
		{"an address twice, spelled differently", frontend + "endpoints: [{address: '10.0.0.1:80'}, {address: '[0::1]:80'}, {address: '10.0.0.1:080'}, {address: '[::1]:80'}]", "endpoints[2].address: the address is that of endpoints[0]"},
		{"an IPv6 address twice", frontend + "endpoints: [{address: '[0::1]:80'}, {address: '[::1]:80'}]", "endpoints[1].address: the address is that of endpoints[0]"},
		{"a host with a blank", frontend + "endpoints: [{address: 'a b:1'}]", `endpoints[0].address: "a b" is neither an IP address nor a host name`},
		{"a hostname with a blank", frontend + "endpoints: [{address: 'a:1', hostname: 'a b'}]", `endpoints[0].hostname: "a b" has a blank or control character in it`},
		{"an unknown health", frontend + "endpoints: [{address: 'a:1', health: healthy}]", `endpoints[0].health: unknown value "healthy"; did you mean "Healthy"?`},
		{"a weight of 0", frontend + "endpoints: [{address: 'a:1', weight: 0}]", "endpoints[0].weight: expected an integer from 1 to"},
		{"a filter that is none", frontend + "filters: [{nme: a}]", `a.yaml:3: filters[0]: unknown field "nme"`},
		{"a filter of an unknown type", frontend + "filters: [{name: a, typed_config: {'@type': type.googleapis.com/no.Type}}]", `a.yaml:3: filters[0].typed_config.@type: unknown type "type.googleapis.com/no.Type"; check its spelling`},
		{"a field deep in a message", "kind: Resource\nresource:\n  '@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration\n  name: ä\n  virtual_hosts:\n  - name: a\n    domain: b\n", `a.yaml:7: resource.virtual_hosts[0]: unknown field "domain"`},
		{"a value deep in a message", "kind: Resource\nresource:\n  '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: a\n  connect_timeout: soon\n", `a.yaml:5: resource.connect_timeout: invalid google.protobuf.Duration value "soon"`},
		{"tls without a mode", frontend + "tls: {}", `a.yaml:3: tls: the field "mode" is missing`},
		{"an unknown mode of tls", frontend + "tls: {mode: Mutual}", `a.yaml:3: tls.mode: unknown value "Mutual"; did you mean "mutual"?`},
		{"an unknown field of tls", frontend + "tls: {mode: off, sans: []}", `a.yaml:3: tls: unknown field "sans"`},
		{"an unknown provider's role", frontend + "tls: {mode: simple, providers: {root: a}}", `a.yaml:3: tls.providers: unknown field "root"; did you mean "roots"?`},
		{"a provider without a name", frontend + "tls: {mode: simple, providers: {roots: ''}}", `tls.providers.roots: expected the name of an entry of certificate_providers in the clients' bootstraps, found an empty string`},
		{"an identity of the system", frontend + "tls: {mode: mutual, providers: {identity: system}}", `tls.providers.identity: "system" has roots, and no certificate; name an entry`},
		{"roots of the system for everybody", frontend + "tls:\n  mode: simple\n  providers:\n    roots: system\n", `a.yaml:6: tls.providers.roots: with the roots of the system any site with a public certificate would be accepted; list the names`},
		{"a SAN of two conditions", frontend + "tls: {mode: simple, subjectAltNames: [a, {prefix: a, suffix: b}]}", `tls.subjectAltNames[1]: expected one condition, found 2; use one of exact`},
		{"a SAN of no condition", frontend + "tls: {mode: simple, subjectAltNames: [{ignoreCase: true}]}", `tls.subjectAltNames[0]: expected one condition, found 0`},
		{"an empty SAN", frontend + "tls: {mode: simple, subjectAltNames: [{prefix: ''}]}", `tls.subjectAltNames[0].prefix: expected a subject alternative name, or a part of one, found an empty string`},
		{"a SAN that is a number", frontend + "tls: {mode: simple, subjectAltNames: [5]}", `tls.subjectAltNames[0]: expected an object, found the number "5"`},
		{"a SAN of a faulty expression", frontend + "tls: {mode: simple, subjectAltNames: [{regex: 'a('}]}", `tls.subjectAltNames[0].regex: error parsing regexp: missing closing )`},
		{"a SAN of an expression of any case", frontend + "tls: {mode: simple, subjectAltNames: [{regex: a, ignoreCase: true}]}", `tls.subjectAltNames[0].regex: ignoreCase has no effect on a regular expression; write (?i)`},
		{"a resource without a body", "kind: Resource", `the field "resource" is missing`},
		{"a resource without a type", "kind: Resource\nresource: {name: a}", `a.yaml:2: resource: missing "@type" field`},
		{"a resource that is no object", "kind: Resource\nresource: 5", `resource: expected an object, found the number "5"`},
		{"a resource without a name", "kind: Resource\nresource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster}", `add the field "name"`},
		{"a resource as Envoy has it", "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\ntype: EDS", `a.yaml:1: the document is an xDS resource without kind; write {kind: Resource, resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, …}}`},
		{"a resource without kind and type", "name: a\ntype: EDS\nlb_policy: ROUND_ROBIN", `write {kind: Resource, resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, …}}`},
		{"routes of JSON", `{"name": "a", "virtualHosts": []}`, `write {kind: Resource, resource: {"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration, …}}`},
		{"a discovery response of Envoy", "resources:\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: a", `a.yaml:1: the document is a list of xDS resources without kind; write {kind: Resource, resource: {"@type": its type, …}}, a document for each`},
		{"a faulty policy", strings.Replace(policy, "Prefix", "Prefx", 1), `did you mean "Prefix"?`},
		{"a service twice", frontend + "---\n" + frontend, "duplicate service frontend; the first is at"},
		{"a resource twice", resource + "---\n" + resource, `duplicate resource payments of type type.googleapis.com/envoy.config.cluster.v3.Cluster with env="prod"`},
		{"a resource twice, in two spellings", namedResource("xdstp://a/envoy.config.cluster.v3.Cluster/x?b=2&a=1") + "---\n" + namedResource("xdstp://a/envoy.config.cluster.v3.Cluster/x?a=1&b=2"),
			"duplicate resource xdstp://a/envoy.config.cluster.v3.Cluster/x?a=1&b=2 of type"},
		{"no line between documents", frontend + frontend, "a.yaml:3: kind: expected the key once, found it again; if another document begins here, write --- on a line before it"},
		{"no YAML", "kind: [", "this is not YAML"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDir(t, "a.yaml", test.text, "b.yaml", "kind: Nonsense")
			r := folder.New(d.path)
			_, err := r.Read()
			var faults *document.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("got error %v, want faults", err)
			}
			if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "b.yaml:1") {
				t.Errorf("the error is\n%v\nwant in it %q, and the fault in b.yaml", err, test.want)
			}
			if _, again := r.Read(); again != err {
				t.Error("nothing changed, and the error is another one")
			}
		})
	}
}

func TestARepairedFolderIsValid(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "name: a", "b.yaml", "kind: Nonsense")
	r := folder.New(d.path)
	if _, err := r.Read(); err == nil {
		t.Fatal("a faulty folder is accepted")
	}
	d.write("a.yaml", frontend)
	d.remove("b.yaml")
	if c, err := r.Settled(t.Context()); err != nil || len(c.Services) != 1 {
		t.Errorf("got %v, %v of the repaired folder, want 1 service", c, err)
	}
}

// A document with a spec and no kind is a policy, as in the examples of the decision record
// (MeshTrafficRoute, "Merging behavior").
func TestAPolicyNeedNotSayItsKind(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", strings.Replace(policy, "kind: MeshHTTPRoute\n", "", 1))
	if got := d.content().Policies; len(got) != 1 {
		t.Errorf("got %d policies, want 1", len(got))
	}
}

func TestAFolderThatComesLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mesh")
	r := folder.New(path)
	_, err := r.Read()
	if want := "there is no folder " + path; err == nil || err.Error() != want {
		t.Fatalf("got error %v, want %s", err, want)
	}
	if _, again := r.Read(); again != err {
		t.Error("nothing changed, and the error is another one")
	}
	xdstest.NoError(t, os.Mkdir(path, 0o700))
	dir{t, path}.write("a.yaml", frontend)
	if c := read(t, r); len(c.Services) != 1 {
		t.Errorf("got %d services, want 1", len(c.Services))
	}
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", frontend)
	if err := os.Symlink(os.DevNull, filepath.Join(d.path, "b.yaml")); err != nil {
		t.Skipf("no links: %v", err)
	}
	r := folder.New(d.path)
	_, err := r.Read()
	cmdtest.ErrorHas(t, "Read", err, "b.yaml is not a regular file")
	d.remove("b.yaml")
	xdstest.NoError(t, os.Symlink("b.yaml", filepath.Join(d.path, "b.yaml")))
	_, err = r.Read()
	cmdtest.ErrorHas(t, "Read", err, filepath.Join(d.path, "b.yaml")+": too many levels of symbolic links")
	d.remove("b.yaml")
	if c, err := r.Settled(t.Context()); err != nil || len(c.Services) != 1 {
		t.Errorf("got %v, %v, want 1 service", c, err)
	}
}

func TestAFileThatIsTooLarge(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "kind: Nonsense", "b.yaml", "# "+strings.Repeat("a", document.MaxSize))
	d.rejected("Read", "a.yaml:1", "b.yaml: the file has")
}

func namedResource(name string) string {
	return fmt.Sprintf("kind: Resource\nname: '%s'\nresource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster}\n", name)
}
