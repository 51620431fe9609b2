// Command protogen generates the Go code of the .proto files in a folder, with
// nothing but the Go toolchain: the compiler is a Go library, and the plugins are
// the Go tools that this module pins.
//
//	go run ./protogen -proto ../proto -out ../proto
//
// An import is looked for in the folder first, then among the files that the
// packages imported here register: Envoy's come from go-control-plane in the
// version that go.mod pins, so that none of them is copied.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	_ "github.com/envoyproxy/go-control-plane/envoy/annotations"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "google.golang.org/genproto/googleapis/api/annotations"
	_ "google.golang.org/genproto/googleapis/rpc/status"
)

// plugins are the generators, each a tool of this module, with its parameters.
var plugins = []struct{ tool, parameter string }{
	{"protoc-gen-go", "paths=source_relative"},
	{"protoc-gen-go-grpc", "paths=source_relative"},
}

func main() {
	folder := flag.String("proto", "", "the `folder` of the .proto files, which is also the root of their imports")
	out := flag.String("out", "", "the `folder` to write to")
	flag.Parse()
	if *folder == "" || *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), *folder, *out); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder, out string) error {
	names, err := fs.Glob(os.DirFS(folder), "dynxds/*/*/*.proto") // as packages are named
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no .proto file in %s", folder)
	}
	if err != nil {
		return err
	}
	files, err := compile(ctx, folder, names)
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		request := &pluginpb.CodeGeneratorRequest{
			FileToGenerate: names,
			Parameter:      proto.String(plugin.parameter),
			ProtoFile:      withImports(files),
		}
		if err := generate(ctx, plugin.tool, request, out); err != nil {
			return fmt.Errorf("%s: %w", plugin.tool, err)
		}
	}
	return nil
}

func compile(ctx context.Context, folder string, names []string) (linker.Files, error) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{folder}},
			protocompile.ResolverFunc(linked),
		},
		// The comments of the .proto files go into the Go code.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	return compiler.Compile(ctx, names...)
}

// linked finds a file among those that this program was linked with.
func linked(name string) (protocompile.SearchResult, error) {
	file, err := protoregistry.GlobalFiles.FindFileByPath(name)
	if err != nil {
		return protocompile.SearchResult{}, err
	}
	return protocompile.SearchResult{Desc: file}, nil
}

// withImports returns the files and all that they import, what is imported first.
func withImports(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var all []*descriptorpb.FileDescriptorProto
	seen := make(map[string]bool)
	var visit func(protoreflect.FileDescriptor)
	visit = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			visit(file.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, file := range files {
		visit(file)
	}
	return all
}

// generate runs a plugin and writes the files it answers with.
func generate(ctx context.Context, tool string, request *pluginpb.CodeGeneratorRequest, out string) error {
	input, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "tool", tool)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, file := range response.File {
		path := filepath.Join(out, filepath.FromSlash(file.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
