package site_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

const twoKindsOfClients = `
kind: Service
name: backend
endpoints: [{address: "10.0.0.1:80", tags: {version: v1}}, {address: "10.0.0.2:80", tags: {version: v2}}]
---
kind: MeshHTTPRoute
name: v2
spec:
  targetRef: {kind: MeshServiceSubset, name: frontend, tags: {version: v2}}
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules: [{backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v2}}]}]
`

// resourceOf returns the resource of a type and name, which must be there once.
func resourceOf(t *testing.T, s *explain.Source, typeURL, name string) *explain.Resource {
	t.Helper()
	var found []*explain.Resource
	for _, r := range s.Resources {
		if r.TypeURL == typeURL && r.Name == name {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d resources %s of type %s, want 1", len(found), name, typeURL)
	}
	return found[0]
}

// A source has what the described client would get, and nothing of other clients.
func TestSourceHoldsWhatTheClientGets(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, twoKindsOfClients)
	for version, leadsToV2 := range map[string]bool{"v2": true, "v1": false} {
		tags := map[string]string{"service": "frontend", "version": version}
		for _, authority := range []string{"", "mesh"} {
			source, _, err := site.Source(site.View{Dir: dir, Authority: authority, Tags: tags, Service: "backend"}, "")
			xdstest.NoError(t, err)
			listener, err := source.ListenerName("xds:///backend")
			xdstest.NoError(t, err)
			if got := resourceOf(t, source, meshroute.ListenerType, listener); got.State != explain.WouldBeSent || got.Raw == nil || got.Version == "" {
				t.Errorf("the Listener is %+v", got)
			}
			name := "backend"
			if authority != "" {
				name = xdsname.New(authority, "envoy.config.route.v3.RouteConfiguration", name)
			}
			routes := resourceOf(t, source, meshroute.RouteConfigurationType, name)
			if routes.State != explain.WouldBeSent || routes.Error != "" || routes.Raw == nil {
				t.Errorf("the routes of %v are %+v", tags, routes)
			}
			if got := strings.Contains(string(routes.Raw.GetValue()), "version=v2"); got != leadsToV2 {
				t.Errorf("the routes of %v lead to v2: %t", tags, got)
			}
		}
	}
}

// What a client would get an error for is in the source with the error.
func TestSourceHasTheErrors(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, strings.ReplaceAll(twoKindsOfClients, "targetRef: {kind: MeshService, name: backend}", "targetRef: {kind: MeshService, name: lost}"))
	source, _, err := site.Source(site.View{Dir: dir}, "")
	xdstest.NoError(t, err)
	got := resourceOf(t, source, meshroute.ListenerType, "lost")
	if want := `NotFound: the mesh has no service "lost", which is named by policy v2`; got.State != explain.WouldBeAnError || got.Error != want || got.Raw != nil {
		t.Errorf("the Listener is %+v, want an error, %s", got, want)
	}
}

func TestListenerNameOfATarget(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, twoKindsOfClients+`
---
kind: Resource
resource: {"@type": type.googleapis.com/envoy.config.listener.v3.Listener, name: by.hand}
`)
	source, _, err := site.Source(site.View{Dir: dir}, "")
	xdstest.NoError(t, err)
	for target, want := range map[string]string{
		"backend": "backend", "xds:///backend": "backend", "xds:backend": "backend", "xds://any/backend": "backend", "by.hand": "by.hand", "xds:///by.hand": "by.hand",
	} {
		if got, err := source.ListenerName(target); err != nil || got != want {
			t.Errorf("the Listener of %s is %q, error %v, want %q", target, got, err, want)
		}
	}
	for target, want := range map[string]string{
		"xds:///backnd": `there is no service "backnd"; there are backend`, "xds:///": "names no service", "": "names no service",
		"xds://%/backend": "is not a target",
	} {
		_, err := source.ListenerName(target)
		cmdtest.ErrorHas(t, target, err, want)
	}
}

// What nothing in the folder knows of a client is probably misspelled, and said with what there is.
func TestNotesOnAnUnknownClient(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, twoKindsOfClients)
	for _, tc := range []struct {
		tags map[string]string
		want []string
	}{
		{map[string]string{"service": "frontend", "version": "v9"}, nil},
		{nil, nil},
		{map[string]string{"service": "frontent", "versoin": "v2"}, []string{
			`no service or policy of the folder is named "frontent", as the client's service is; known are backend, frontend`,
			`no policy of the folder uses the client's tag "versoin"; known are version`,
		}},
	} {
		_, notes, err := site.Source(site.View{Dir: dir, Tags: tc.tags}, "")
		if err != nil || !slices.Equal(notes, tc.want) {
			t.Errorf("the notes on %v are %q, error %v, want %q", tc.tags, notes, err, tc.want)
		}
	}
}

// A faulty folder has the error of validate.
func TestSourceOfAFaultyFolder(t *testing.T) {
	t.Parallel()
	dir := folderOf(t, "kind: Service\nnam: backend\n")
	_, _, err := site.Source(site.View{Dir: dir}, "")
	_, want := site.Validate(t.Context(), dir, "")
	if err == nil || want == nil || err.Error() != want.Error() || !strings.Contains(err.Error(), "mesh.yaml:") {
		t.Errorf("the error is %v, want that of validate, %v", err, want)
	}
	_, _, err = site.Source(site.View{Dir: folderOf(t, twoKindsOfClients), Service: "backnd"}, "")
	cmdtest.ErrorHas(t, "an unknown service", err, "there are backend")
}
