package main

import (
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/kubepod"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// The pods of the examples have what dynxds.KubernetesBootstrap needs. With it a client is known by its token, and dials a short
// name. No other test runs beside it, as it sets the environment of the process.
func TestPodOfExample(t *testing.T) {
	for file, container := range map[string]func(*corev1.PodSpec) *corev1.Container{
		"client.yaml":           func(p *corev1.PodSpec) *corev1.Container { return &p.Containers[0] },
		"client-with-file.yaml": func(p *corev1.PodSpec) *corev1.Container { return &p.InitContainers[0] },
	} {
		t.Run(file, func(t *testing.T) {
			s, pods := newSecure(t), &pods{}
			s.echo(pods, "greeter", 8080)
			pod := s.pod("frontend", "frontend", "node-of-"+s.namespace, "a")
			// This is what kubelet would make of the manifest.
			var example corev1.PodSpec
			for _, object := range objectsOf(t, filepath.Join(manifests, "example", file)) {
				var deployment appsv1.Deployment
				xdstest.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment))
				example = deployment.Spec.Template.Spec
			}
			of, dir := container(&example), t.TempDir()
			for _, e := range of.Env {
				t.Setenv(e.Name, map[string]string{
					"metadata.name": pod.Name, "metadata.namespace": s.namespace, "spec.nodeName": pod.Spec.NodeName,
				}[e.ValueFrom.FieldRef.FieldPath])
			}
			sources := projected(t, &example, of, filepath.Dir(kubepod.Token))
			files := map[string]string{sources[0].ServiceAccountToken.Path: s.token("frontend", sources[0].ServiceAccountToken.Audience, pod)}
			for _, item := range sources[1].ConfigMap.Items {
				files[item.Path] = string(s.ca.PEM())
			}
			for name, text := range files {
				xdstest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			// The default places are the pod's own.
			t.Setenv("DYNXDS_SERVER", s.server)
			t.Setenv("DYNXDS_TOKEN_FILE", filepath.Join(dir, filepath.Base(kubepod.Token)))
			t.Setenv("DYNXDS_CA_FILE", filepath.Join(dir, filepath.Base(kubepod.CA)))
			bootstrap, err := dynxds.KubernetesBootstrap()
			xdstest.NoError(t, err)
			awaitInvoke(t, cmdtest.DialXDS(t, "xds:///greeter", bootstrap, pods.dial()), echoMethod, nil, "greeter")
		})
	}
}

// projected returns the sources of the projected volume that a container has at a path.
func projected(t *testing.T, spec *corev1.PodSpec, of *corev1.Container, path string) []corev1.VolumeProjection {
	t.Helper()
	for _, mount := range of.VolumeMounts {
		for _, volume := range spec.Volumes {
			if mount.MountPath == path && mount.Name == volume.Name && volume.Projected != nil {
				return volume.Projected.Sources
			}
		}
	}
	t.Fatalf("the container has no projected volume at %s", path)
	return nil
}
