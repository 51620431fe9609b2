package testutils_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/testutils"
)

func TestBootstrap(t *testing.T) {
	t.Parallel()
	insecure := []any{map[string]any{"type": "insecure"}}
	tests := []struct {
		name string
		opts []testutils.BootstrapOption
		want map[string]any
	}{
		{"plain", nil, map[string]any{
			"node":        map[string]any{"id": "me"},
			"xds_servers": []any{map[string]any{"server_uri": "a:1", "channel_creds": insecure}},
		}},
		{"everything", []testutils.BootstrapOption{
			testutils.ServerFeatures("delta"),
			testutils.FurtherServer("b:2", "x"),
			testutils.Authority("own", "c:3", map[string]any{"k": "v"}),
			testutils.Authority("shared", "", nil),
			testutils.NodeField("cluster", "cl"),
			testutils.TopLevel("dns_fallback", "never"),
		}, map[string]any{
			"node": map[string]any{"id": "me", "cluster": "cl"},
			"xds_servers": []any{
				map[string]any{"server_uri": "a:1", "channel_creds": insecure, "server_features": []any{"delta"}},
				map[string]any{"server_uri": "b:2", "channel_creds": insecure, "server_features": []any{"x"}},
			},
			"authorities": map[string]any{
				"own": map[string]any{
					"k":           "v",
					"xds_servers": []any{map[string]any{"server_uri": "c:3", "channel_creds": insecure}},
				},
				"shared": map[string]any{},
			},
			"dns_fallback": "never",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got map[string]any
			if err := json.Unmarshal(testutils.Bootstrap("me", "a:1", tt.opts...), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("bootstrap (-want +got):\n%s", diff)
			}
		})
	}
}
