package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Clients are those of one API server.
type Clients struct {
	Typed    kubernetes.Interface
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
}

// NewClients returns the clients of a configuration.
func NewClients(config *rest.Config) (c *Clients, err error) {
	c = &Clients{}
	typed := rest.CopyConfig(config)
	typed.ContentType, typed.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if c.Typed, err = kubernetes.NewForConfig(typed); err != nil {
		return nil, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.Metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	return c, nil
}

// answers returns an error unless the API server answers a request for its version. That it does not allow the request is an answer.
func (c *Clients) answers(ctx context.Context) error {
	_, err := c.Version(ctx)
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError {
		return nil
	}
	return err
}

// Version asks the API server for its version, such as "v1.36.3".
func (c *Clients) Version(ctx context.Context) (string, error) {
	var v version.Info
	err := c.get(ctx, &v, "/version")
	return v.GitVersion, err
}

// Has reports whether the API server has a resource, such as that of a CRD.
func (c *Clients) Has(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	var list metav1.APIResourceList
	err := c.get(ctx, &list, "/apis", resource.Group, resource.Version)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }), err
}

// get decodes the JSON at a path.
func (c *Clients) get(ctx context.Context, to any, path ...string) error {
	text, err := c.Typed.Discovery().RESTClient().Get().AbsPath(path...).SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// The resources that there are Go types for, and those of which only the metadata is read.
var (
	services       = corev1.SchemeGroupVersion.WithResource("services")
	endpointSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	nodes          = corev1.SchemeGroupVersion.WithResource("nodes")
	namespaces     = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// of lists and watches a resource in a namespace, or in all.
func (c *Clients) of(resource schema.GroupVersionResource, namespace string) *cache.ListWatch {
	switch resource {
	case services:
		return listWatch(c.Typed.CoreV1().Services(namespace))
	case endpointSlices:
		return listWatch(c.Typed.DiscoveryV1().EndpointSlices(namespace))
	case nodes, namespaces:
		return listWatch(c.Metadata.Resource(resource))
	}
	return listWatch(c.Dynamic.Resource(resource).Namespace(namespace))
}

func listWatch[L runtime.Object](of interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of.List(ctx, o) },
		WatchFuncWithContext: of.Watch,
	}
}
