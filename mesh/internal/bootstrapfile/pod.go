package bootstrapfile

import "github.com/dynxds/dynxds/internal/kubepod"

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
