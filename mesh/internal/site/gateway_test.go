package site_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/site"
)

// reportsOn validates a folder with one file, and returns the reports without its path.
func reportsOn(t *testing.T, text string) []string {
	t.Helper()
	dir := folderOf(t, text)
	v, err := site.Validate(t.Context(), dir, "")
	xdstest.NoError(t, err)
	var got []string
	for _, r := range v.Reports {
		got = append(got, strings.TrimPrefix(r.String(), dir+"/mesh.yaml:"))
	}
	return got
}

// References of raw resources to what is not there are reported, unless another control plane may have it.
func TestValidateReportsOnRawReferences(t *testing.T) {
	t.Parallel()
	const at = "type.googleapis.com/envoy."
	raw := func(body string) string { return "---\nkind: Resource\nresource: {'@type': " + at + body + "}\n" }
	text := "kind: Service\nname: backend\n" +
		raw(`config.cluster.v3.Cluster, name: good, type: EDS, eds_cluster_config: {service_name: backend, eds_config: {ads: {}}}`) +
		raw(`config.cluster.v3.Cluster, name: bad, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}`) +
		raw(`config.route.v3.RouteConfiguration, name: r, virtual_hosts: [{name: v, domains: ['*'], routes: [`+
			`{match: {path: /a}, route: {cluster: backend}}, {match: {path: /b}, route: {cluster: god}}, {match: {path: /c}, route: {cluster: 'xdstp://other/envoy.config.cluster.v3.Cluster/c'}},`+
			`{match: {prefix: /}, route: {weighted_clusters: {clusters: [{name: good, weight: 1}, {name: nowhere, weight: 1}]}, request_mirror_policies: [{cluster: gone}]}}]}]`) +
		raw(`config.listener.v3.Listener, name: l, api_listener: {api_listener: {'@type': `+at+`extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, `+
			`rds: {route_config_name: missing, config_source: {ads: {}}}, http_filters: [{name: router, typed_config: {'@type': `+at+`extensions.filters.http.router.v3.Router}}]}}`)
	xdstest.Equal(t, "reports", []string{
		`7: warning: Cluster bad: there is no ClusterLoadAssignment "bad"`,
		`10: warning: RouteConfiguration r: there is no Cluster "god"; did you mean "good"?`,
		`10: warning: RouteConfiguration r: there is no Cluster "gone"`,
		`10: warning: RouteConfiguration r: there is no Cluster "nowhere"`,
		`13: warning: Listener l: there is no RouteConfiguration "missing"`,
	}, reportsOn(t, text))
}
