package bootstrap_test

import (
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func ExampleParse() {
	config, err := bootstrap.Parse("example", []byte(`{
		"xds_servers": [{
			"server_uri": "dns:///xds.example.com:443",
			"channel_creds": [{"type": "insecure"}],
			"server_features": ["delta"]
		}],
		"authorities": {"xds.example.com": {}}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	server := config.Servers[0]
	fmt.Println(server, server.CredentialsType, server.HasFeature(bootstrap.FeatureDelta))
	name, err := config.ListenerName("xds.example.com", "echo")
	fmt.Println(name, err)
	_, err = config.ListenerName("xds.example.org", "echo")
	fmt.Println(err)
	// Output:
	// dns:///xds.example.com:443 insecure true
	// xdstp://xds.example.com/envoy.config.listener.v3.Listener/echo <nil>
	// xDS bootstrap example: authority "xds.example.org" is unknown; authorities has "xds.example.com"
}

// plaintext is a type of channel credentials that a program adds.
type plaintext struct{}

func (plaintext) Type() string { return "plaintext" }

func (plaintext) ParseConfig(json.RawMessage) (bootstrap.BuildCredentials, error) {
	return func() (credentials.Bundle, func(), error) { return insecure.NewBundle(), nil, nil }, nil
}

func init() { bootstrap.RegisterCredentials(plaintext{}) }

func ExampleServer_DialOptions() {
	config, err := bootstrap.Parse("example", []byte(`{
		"xds_servers": [{"server_uri": "localhost:18000", "channel_creds": [{"type": "plaintext"}]}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	server := config.Servers[0]
	credentials, release, err := server.DialOptions()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer release() // after conn.Close
	conn, err := grpc.NewClient(server.URI, credentials...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output: localhost:18000
}
