package bootstrapfile

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// What a client in a pod uses unless the environment, or the options, say otherwise.
const (
	// PodServer is the Service of deploy/kubernetes.
	PodServer = "dynxds.dynxds-system.svc:18000"
	// PodCA and PodToken are files of one projected volume.
	PodCA    = "/var/run/secrets/dynxds/ca.crt"
	PodToken = "/var/run/secrets/dynxds/token"
)

// InPod completes the options of a client that runs in a pod of Kubernetes: where dynxds-kubernetes is, the token and the
// authorities for it, and which pod it is. The error has all that is missing in the pod.
func (o *Options) InPod(getenv func(name string) string) error {
	var faults []error
	downward := func(name, field string) string {
		value := getenv(name)
		if value == "" {
			faults = append(faults, fmt.Errorf("the environment has no %s: add {name: %s, valueFrom: {fieldRef: {fieldPath: %s}}} to env of the container", name, name, field))
		}
		return value
	}
	namespace := downward("POD_NAMESPACE", "metadata.namespace")
	if o.NodeID == "" {
		o.NodeID = downward("POD_NAME", "metadata.name") + "." + namespace
	}
	if len(o.Servers) == 0 {
		o.Servers = []string{cmp.Or(getenv("DYNXDS_SERVER"), PodServer)}
	}
	if len(o.Features) == 0 {
		// dynxds-kubernetes speaks delta, and says which resources it lacks.
		o.Features = []string{string(bootstrap.FeatureDelta), string(bootstrap.FeatureResourceTimerIsTransientError)}
	}
	o.TLS = true
	o.CA = cmp.Or(o.CA, getenv("DYNXDS_CA_FILE"), PodCA)
	o.Token = cmp.Or(o.Token, getenv("DYNXDS_TOKEN_FILE"), PodToken)
	for _, file := range []struct{ path, what, wayOut string }{
		{o.Token, "the token of the service account", "add a projected volume with {serviceAccountToken: {path: token, audience: dynxds}}, mounted there"},
		{o.CA, "the authorities that certify the control plane", "add them to the volume with {configMap: {name: dynxds-ca}}"},
	} {
		if err := readable(file.path); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w: %s", file.what, err, file.wayOut))
		}
	}
	o.Metadata = with(o.Metadata, "namespace", namespace)
	if node := getenv("NODE_NAME"); node != "" {
		o.Metadata = with(o.Metadata, "node", node)
	}
	return errors.Join(faults...)
}

// with sets a key of the metadata that has no value.
func with(metadata map[string]string, key, value string) map[string]string {
	if metadata == nil {
		metadata = make(map[string]string)
	}
	if metadata[key] == "" {
		metadata[key] = value
	}
	return metadata
}

func readable(path string) error {
	file, err := os.Open(path)
	if err == nil {
		file.Close()
	}
	return err
}
