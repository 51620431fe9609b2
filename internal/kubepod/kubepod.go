// Package kubepod makes the bootstrap of a client in a pod of Kubernetes from the pod's environment and
// volume. The control plane is dynxds-kubernetes.
package kubepod

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// What a client uses unless the environment of its pod says otherwise.
const (
	// Server is the Service of deploy/kubernetes.
	Server = "dynxds.dynxds-system.svc:18000"
	// CA and Token are files of one projected volume.
	CA    = "/var/run/secrets/dynxds/ca.crt"
	Token = "/var/run/secrets/dynxds/token"
)

// Features returns the server features of dynxds-kubernetes: it speaks delta, and says which resources it lacks.
func Features() []string {
	return []string{string(bootstrap.FeatureDelta), string(bootstrap.FeatureResourceTimerIsTransientError)}
}

// Pod is what a client has to know.
type Pod struct {
	// Server is the gRPC target of the control plane, CA a PEM file with the authorities that certify
	// it, and Token a file with the token of the service account.
	Server, CA, Token string
	// ID and Metadata are those of the client's node.
	ID       string
	Metadata map[string]string
}

// Complete sets what is not set yet to what the environment and the volume of the pod have. The error has all that is
// missing there. It does not change Metadata, but replaces it.
func (p *Pod) Complete(getenv func(name string) string) error {
	var faults []error
	downward := func(name, field string) string {
		value := getenv(name)
		if value == "" {
			faults = append(faults, fmt.Errorf("the environment has no %s: add {name: %s, valueFrom: {fieldRef: {fieldPath: %s}}} to env of the container", name, name, field))
		}
		return value
	}
	namespace := downward("POD_NAMESPACE", "metadata.namespace")
	if p.ID == "" {
		p.ID = downward("POD_NAME", "metadata.name") + "." + namespace
	}
	p.Server = cmp.Or(p.Server, getenv("DYNXDS_SERVER"), Server)
	p.CA = cmp.Or(p.CA, getenv("DYNXDS_CA_FILE"), CA)
	p.Token = cmp.Or(p.Token, getenv("DYNXDS_TOKEN_FILE"), Token)
	for _, file := range []struct{ path, what, wayOut string }{
		{p.Token, "the token of the service account", "add a projected volume with {serviceAccountToken: {path: token, audience: dynxds}}, mounted there"},
		{p.CA, "the authorities that certify the control plane", "add them to the volume with {configMap: {name: dynxds-ca}}"},
	} {
		if err := readable(file.path); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w: %s", file.what, err, file.wayOut))
		}
	}
	metadata := map[string]string{"namespace": namespace}
	if node := getenv("NODE_NAME"); node != "" {
		metadata["node"] = node
	}
	for key, value := range p.Metadata {
		metadata[key] = cmp.Or(value, metadata[key])
	}
	p.Metadata = metadata
	return errors.Join(faults...)
}

func readable(path string) error {
	file, err := os.Open(path)
	if err == nil {
		file.Close()
	}
	return err
}

// Bootstrap returns the bootstrap of a Pod that is complete, indented. The error lists everything that is wrong in it.
func (p *Pod) Bootstrap() ([]byte, error) {
	text := fmt.Appendf(nil, `{
		"xds_servers": [{
			"server_uri": %s,
			"channel_creds": [{"type": "tls", "config": {"ca_certificate_file": %s}}],
			"call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": %s}}],
			"server_features": %s
		}],
		"node": {"id": %s, "locality": {}, "metadata": %s}
	}
`, jsonOf(p.Server), jsonOf(p.CA), jsonOf(p.Token), jsonOf(Features()), jsonOf(p.ID), jsonOf(p.Metadata))
	if _, err := bootstrap.Parse("the bootstrap", text); err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	err := json.Indent(&indented, text, "", "  ")
	return indented.Bytes(), err
}

func jsonOf(value any) []byte {
	text, _ := json.Marshal(value) // of texts, which cannot fail
	return text
}
