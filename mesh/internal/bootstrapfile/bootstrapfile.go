// Package bootstrapfile writes a client's bootstrap from the options of the command line, which may be
// completed with what a pod of Kubernetes has, and validates it with xdsclient/bootstrap.
package bootstrapfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/kubepod"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Options are the contents of a bootstrap.
type Options struct {
	// Servers are the gRPC targets of management servers, by preference; at least one.
	Servers []string
	// Features are the servers' features.
	Features []string
	// TLS makes clients use TLS instead of plaintext. CA, Cert and Key are its PEM files, each ""
	// for none.
	TLS           bool
	CA, Cert, Key string
	// Token is a file with a token that is sent with requests (gRFC A97), "" for none. It needs TLS.
	Token string
	// MeshCA, MeshCert and MeshKey are PEM files for connections to services that ask for TLS, each
	// "" for none: the certificate provider instance MeshProvider.
	MeshCA, MeshCert, MeshKey string
	// ServerTemplate names the Listeners of gRPC servers that have MeshCert.
	ServerTemplate string
	// NodeID and NodeCluster identify the client.
	NodeID, NodeCluster string
	// Locality is "region/zone/sub-zone", whose last parts may be omitted. The bootstrap always
	// has a locality, even an empty one: grpc-js fails every RPC without.
	Locality string
	// Metadata are strings of the node's metadata.
	Metadata map[string]string
	// Constrained are keys of Metadata that become constraints (TP2).
	Constrained []string
	// Authority is that of "dynxds serve --authority", "" for none: clients dial
	// "xds://AUTHORITY/service" and get their constraints by DPDS, whose server feature is added.
	Authority string
	// DNSFallback is "" for the default.
	DNSFallback string
}

// MeshProvider is the certificate provider instance that services name unless they name another.
const MeshProvider = "default"

// The fields of the document that the command line can set.
type (
	document struct {
		Servers     []server             `json:"xds_servers"`
		Node        node                 `json:"node"`
		Authorities map[string]authority `json:"authorities,omitempty"`
		Providers   map[string]provider  `json:"certificate_providers,omitempty"`
		Template    string               `json:"server_listener_resource_name_template,omitempty"`
		Constrained []string             `json:"node_metadata_constraints,omitempty"`
		DNSFallback string               `json:"dns_fallback,omitempty"`
	}
	server struct {
		URI      string   `json:"server_uri"`
		Creds    []creds  `json:"channel_creds"`
		Calls    []creds  `json:"call_creds,omitempty"`
		Features []string `json:"server_features,omitempty"`
	}
	creds struct {
		Type   string            `json:"type"`
		Config map[string]string `json:"config,omitempty"`
	}
	provider struct {
		Plugin string            `json:"plugin_name"`
		Config map[string]string `json:"config"`
	}
	node struct {
		ID       string            `json:"id,omitempty"`
		Cluster  string            `json:"cluster,omitempty"`
		Locality locality          `json:"locality"`
		Metadata map[string]string `json:"metadata,omitempty"`
	}
	locality struct {
		Region  string `json:"region,omitempty"`
		Zone    string `json:"zone,omitempty"`
		SubZone string `json:"sub_zone,omitempty"`
	}
	authority struct {
		DPDS string `json:"dynamic_parameter_constraints_resource"`
	}
)

// JSON returns the bootstrap, indented. The error lists everything that is wrong with the options.
func (o *Options) JSON() ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	doc := document{
		Node:        node{ID: o.NodeID, Cluster: o.NodeCluster, Locality: o.locality(), Metadata: o.Metadata},
		Constrained: o.Constrained,
		DNSFallback: o.DNSFallback,
	}
	of := server{Creds: []creds{{Type: "insecure"}}, Features: o.Features}
	if o.TLS {
		of.Creds = []creds{{Type: "tls", Config: files(o.CA, o.Cert, o.Key)}}
	}
	if o.Token != "" {
		of.Calls = []creds{{Type: "jwt_token_file", Config: map[string]string{"jwt_token_file": o.Token}}}
	}
	if dpds := string(bootstrap.FeatureDynamicParameterConstraints); o.Authority != "" && !slices.Contains(o.Features, dpds) {
		of.Features = append(slices.Clone(o.Features), dpds)
	}
	for _, uri := range o.Servers {
		of.URI = uri
		doc.Servers = append(doc.Servers, of)
	}
	if o.Authority != "" {
		doc.Authorities = map[string]authority{o.Authority: {DPDS: DPDSName(o.Authority)}}
	}
	if config := files(o.MeshCA, o.MeshCert, o.MeshKey); len(config) > 0 {
		doc.Providers = map[string]provider{MeshProvider: {Plugin: "file_watcher", Config: config}}
	}
	if o.MeshCert != "" {
		doc.Template = o.ServerTemplate // a gRPC server with the bootstrap has what its Listener takes
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, err
	}
	config, err := bootstrap.Parse("the bootstrap", text)
	if err != nil {
		return nil, err
	}
	// A bootstrap may have unknown features; on the command line they are a typing mistake.
	for _, feature := range o.Features {
		if !config.Servers[0].HasFeature(bootstrap.Feature(feature)) {
			return nil, fmt.Errorf("--feature %q: there is no such server feature", feature)
		}
	}
	return append(text, '\n'), nil
}

// check finds mistakes that bootstrap.Parse would accept.
func (o *Options) check() error {
	var faults []error
	if len(o.Servers) == 0 {
		faults = append(faults, errors.New("--server is missing; it is the gRPC target of the control plane, such as localhost:18000"))
	}
	for _, server := range o.Servers {
		if server == "" {
			faults = append(faults, errors.New(`--server "": want a gRPC target, such as localhost:18000`))
		}
	}
	if !o.TLS && o.CA+o.Cert+o.Key+o.Token != "" {
		faults = append(faults, errors.New("--ca, --cert, --key and --token-file are for TLS; add --tls"))
	}
	if strings.Count(o.Locality, "/") > 2 {
		faults = append(faults, fmt.Errorf("--locality %q: want region/zone/sub-zone", o.Locality))
	}
	if strings.ContainsAny(o.Authority, "/?#%") {
		faults = append(faults, fmt.Errorf("--authority %q: want a name without / ? # %%", o.Authority))
	}
	return errors.Join(faults...)
}

// DPDSName is the name of the resource with the constraints for clients of an authority. It is the same
// for all clients; its content depends on the client.
func DPDSName(authority string) string {
	return xdsname.New(authority, xdsname.ConstraintsMap, "client")
}

func (o *Options) locality() locality {
	parts := append(strings.Split(o.Locality, "/"), "", "")
	return locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]}
}

// files is the configuration of PEM files, by the keys of gRFC A65 and A29.
func files(ca, cert, key string) map[string]string {
	config := map[string]string{}
	for key, path := range map[string]string{
		"ca_certificate_file": ca, "certificate_file": cert, "private_key_file": key,
	} {
		if path != "" {
			config[key] = path
		}
	}
	return config
}

// InPod completes the options of a client that runs in a pod of Kubernetes: where dynxds-kubernetes is, the token and the
// authorities for it, and which pod it is. The error has all that is missing in the pod.
func (o *Options) InPod(getenv func(name string) string) error {
	pod := kubepod.Pod{CA: o.CA, Token: o.Token, ID: o.NodeID, Metadata: o.Metadata}
	err := pod.Complete(getenv)
	if len(o.Servers) == 0 {
		o.Servers = []string{pod.Server}
	}
	if len(o.Features) == 0 {
		o.Features = kubepod.Features()
	}
	o.TLS = true
	o.CA, o.Token, o.NodeID, o.Metadata = pod.CA, pod.Token, pod.ID, pod.Metadata
	return err
}
