package cluster

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	_, err := c.Typed.Discovery().RESTClient().Get().AbsPath("/version").MaxRetries(0).DoRaw(ctx)
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError {
		return nil
	}
	return err
}

func (c *Clients) services(namespace string) *cache.ListWatch {
	return listWatch(c.Typed.CoreV1().Services(namespace).List, c.Typed.CoreV1().Services(namespace).Watch)
}

func (c *Clients) endpointSlices(namespace string) *cache.ListWatch {
	of := c.Typed.DiscoveryV1().EndpointSlices(namespace)
	return listWatch(of.List, of.Watch)
}

// objects lists a resource that this program has no Go types for.
func (c *Clients) objects(resource schema.GroupVersionResource, namespace string) *cache.ListWatch {
	of := c.Dynamic.Resource(resource).Namespace(namespace)
	return listWatch(of.List, of.Watch)
}

// metadataOf lists the metadata alone of a resource of the cluster.
func (c *Clients) metadataOf(resource schema.GroupVersionResource) *cache.ListWatch {
	of := c.Metadata.Resource(resource)
	return listWatch(of.List, of.Watch)
}

func listWatch[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error),
	watched func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) },
		WatchFuncWithContext: watched,
	}
}
