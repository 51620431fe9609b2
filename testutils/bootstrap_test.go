package testutils_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func TestBootstrap(t *testing.T) {
	t.Parallel()
	file := testutils.Bootstrap("me", "a:1", testutils.ServerFeatures("delta"), testutils.FurtherServer("b:2", "x"),
		testutils.Authority("own", "c:3", map[string]any{"k": "v"}), testutils.Authority("shared", "", nil),
		testutils.NodeField("cluster", "cl"), testutils.TopLevel("dns_fallback", "never"))
	const want = `{"authorities":{"own":{"k":"v","xds_servers":[{"channel_creds":[{"type":"insecure"}],"server_uri":"c:3"}]},"shared":{}},` +
		`"dns_fallback":"never","node":{"cluster":"cl","id":"me"},"xds_servers":[` +
		`{"channel_creds":[{"type":"insecure"}],"server_features":["delta"],"server_uri":"a:1"},` +
		`{"channel_creds":[{"type":"insecure"}],"server_features":["x"],"server_uri":"b:2"}]}`
	var got bytes.Buffer
	xdstest.NoError(t, json.Compact(&got, file))
	xdstest.Equal(t, "bootstrap", want, got.String())
}
