// Command otel is a client with OpenTelemetry: it makes RPCs to a target, and serves their
// metrics, gRPC's and dynxds's, to Prometheus. With --spans it also prints its spans.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	experimental "google.golang.org/grpc/experimental/opentelemetry"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats/opentelemetry"

	_ "github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/observe/metrics"
	"github.com/dynxds/dynxds/observe/oteltrace"
)

func main() {
	target := flag.String("target", "xds:///backend", "target to dial")
	listen := flag.String("listen", "127.0.0.1:9464", "address to serve /metrics on")
	interval := flag.Duration("interval", 100*time.Millisecond, "time between two RPCs")
	spans := flag.Bool("spans", false, "print the spans of RPCs")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fmt.Printf("metrics at http://%s/metrics\n", listener.Addr())
	var to io.Writer
	if *spans {
		to = os.Stdout
	}
	if err := run(ctx, *target, listener, *interval, to); err != nil {
		log.Fatal(err)
	}
}

// run makes RPCs and serves their metrics until ctx ends. It writes spans to the writer, unless
// that is nil.
func run(ctx context.Context, target string, listener net.Listener, interval time.Duration, spans io.Writer) error {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return err
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	defer meters.Shutdown(context.WithoutCancel(ctx))
	options := opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{
		MeterProvider:  meters,
		Metrics:        opentelemetry.DefaultMetrics().Join(metrics.All()),
		OptionalLabels: []string{"grpc.lb.locality", "grpc.lb.backend_service"},
	}}
	if spans != nil {
		printer, err := stdouttrace.New(stdouttrace.WithWriter(spans), stdouttrace.WithPrettyPrint())
		if err != nil {
			return err
		}
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(printer))
		defer tracers.Shutdown(context.WithoutCancel(ctx))
		options.TraceOptions = experimental.TraceOptions{TracerProvider: tracers, TextMapPropagator: propagation.TraceContext{}}
	}

	dial := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), opentelemetry.DialOption(options)}
	conn, err := grpc.NewClient(target, append(dial, oteltrace.DialOptions()...)...)
	if err != nil {
		return err
	}
	defer conn.Close()
	var calls sync.WaitGroup
	defer calls.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	calls.Go(func() { call(ctx, healthpb.NewHealthClient(conn), interval) })

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// call makes an RPC in each interval, and logs those that fail.
func call(ctx context.Context, client healthpb.HealthClient, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		rpc, cancel := context.WithTimeout(ctx, 10*time.Second)
		if _, err := client.Check(rpc, new(healthpb.HealthCheckRequest)); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		cancel()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
