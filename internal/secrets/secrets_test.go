package secrets

import (
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	tokenpb "github.com/envoyproxy/go-control-plane/envoy/extensions/grpc_service/call_credentials/access_token/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestHide(t *testing.T) {
	t.Parallel()
	const types = "type.googleapis.com/envoy."
	const authz = types + "extensions.filters.http.ext_authz.v3.ExtAuthz"
	const service = `"grpc_service": {"google_grpc": {"target_uri": "token", "call_credentials": [{"access_token": "hunter2"}], "call_credentials_plugin": [{
		"@type": "` + types + `extensions.grpc_service.call_credentials.access_token.v3.AccessTokenCredentials", "token": "hunter2"}]}}`
	for name, text := range map[string]string{
		"no secrets": `{"@type": "` + types + `config.cluster.v3.Cluster", "name": "token"}`,
		"TLS": `{"@type": "` + types + `config.cluster.v3.Cluster", "transport_socket": {"typed_config": {
			"@type": "` + types + `extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "a", "common_tls_context": {"tls_certificates": [
			{"private_key": {"inline_string": "hunter2"}, "password": {"inline_bytes": "aHVudGVyMg=="}, "certificate_chain": {"filename": "f"}}]}}}}`,
		"Any":   `{"@type": "` + authz + `", ` + service + `}`,
		"a map": `{"@type": "` + authz + `PerRoute", "check_settings": {"context_extensions": {"key": "hunter2"}}}`,
	} {
		var a, want anypb.Any
		xdstest.NoError(t, protojson.Unmarshal([]byte(text), &a))
		xdstest.NoError(t, protojson.Unmarshal([]byte(strings.NewReplacer("hunter2", "*******", "aHVudGVyMg", "KioqKioqKg").Replace(text)), &want))
		if got := Hide(&a); name == "no secrets" && got != &a {
			t.Error("a message without secrets is copied")
		} else {
			xdstest.Equal(t, name, &want, got, protocmp.Transform())
		}
	}
	deep, err := anypb.New(&tokenpb.AccessTokenCredentials{Token: "hunter2"})
	for range 1000 {
		xdstest.NoError(t, err)
		deep, err = anypb.New(deep)
	}
	xdstest.Equal(t, "what is too deep to be looked into", deep, Hide(deep), protocmp.Transform())
}
