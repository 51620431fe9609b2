// Package googledefault adds the channel credentials of type "google_default" to the
// bootstrap (gRFC A27): TLS with the system's roots, or ALTS on Google Cloud, and the
// Application Default Credentials as call credentials. Import it for its side effect:
//
//	import _ "github.com/dynxds/dynxds/xdsclient/bootstrap/googledefault"
//
// It is a package of its own since it links Google's OAuth libraries. It has no
// configuration: "config" is ignored.
package googledefault

import (
	"encoding/json"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/google"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func init() { bootstrap.RegisterCredentials(builder{}) }

type builder struct{}

func (builder) Type() string { return "google_default" }

func (builder) ParseConfig(json.RawMessage) (bootstrap.BuildCredentials, error) {
	return func() (credentials.Bundle, func(), error) { return google.NewDefaultCredentials(), nil, nil }, nil
}
