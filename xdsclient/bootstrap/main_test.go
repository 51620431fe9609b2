package bootstrap

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers is the least a bootstrap has to have, to be followed by further keys.
const servers = `"xds_servers": [{"server_uri": "dns:///xds.example.com:443", "channel_creds": [{"type": "insecure"}]}]`

// mustParse parses a bootstrap that is right.
func mustParse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Parse("test", []byte(text))
	if err != nil {
		t.Fatalf("Parse failed on a valid bootstrap: %v", err)
	}
	return c
}
