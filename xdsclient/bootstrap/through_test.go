package bootstrap_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// A document for clients of a relay has the relay in place of all management servers, and else what it had.
func TestThrough(t *testing.T) {
	t.Parallel()
	c, err := bootstrap.Parse("test", []byte(`{
		"xds_servers": [
			{"server_uri": "dns:///control:443", "channel_creds": [{"type": "google_default"}, {"type": "tls", "config": {}}], "server_features": ["xds_v3", "trusted_xds_server"]},
			{"server_uri": "dns:///fallback:443", "channel_creds": [{"type": "insecure"}], "server_features": ["delta"]}
		],
		"node": {"id": "a", "metadata": {"ENV": "prod"}},
		"authorities": {
			"other": {"client_listener_resource_name_template": "xdstp://other/envoy.config.listener.v3.Listener/%s",
				"xds_servers": [{"server_uri": "dns:///other:443", "channel_creds": [{"type": "insecure"}]}]},
			"same": {}
		},
		"server_listener_resource_name_template": "grpc/server?xds.resource.listening_address=%s",
		"unknown to dynxds": [1],
		"resource_cache": {"directory": "/var/cache/xds"}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	got := c.Through("unix:///run/xds.sock")
	want := `{
		"xds_servers": [{"server_uri": "unix:///run/xds.sock", "channel_creds": [{"type": "insecure"}], "server_features": ["delta", "trusted_xds_server"]}],
		"node": {"id": "a", "metadata": {"ENV": "prod"}},
		"authorities": {
			"other": {"client_listener_resource_name_template": "xdstp://other/envoy.config.listener.v3.Listener/%s"},
			"same": {}
		},
		"server_listener_resource_name_template": "grpc/server?xds.resource.listening_address=%s",
		"unknown to dynxds": [1]
	}`
	var gotValue, wantValue any
	if err := json.Unmarshal(got, &gotValue); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wantValue); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(gotValue, wantValue) {
		t.Errorf("got %s, want %s", got, want)
	}
	again, err := bootstrap.Parse("test", got)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(again.Authorities["other"].Servers); n != 1 || again.Authorities["other"].Servers[0].URI != "unix:///run/xds.sock" {
		t.Errorf("the authority has %d servers, %v", n, again.Authorities["other"].Servers)
	}
	if string(again.Through("unix:///run/other.sock")) == string(got) {
		t.Error("a second relay changes nothing")
	}
}
