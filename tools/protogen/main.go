// Command protogen generates the Go code of the .proto files in a folder, with
// nothing but the Go toolchain: the compiler is a Go library, and the plugins are
// the Go tools that this module pins.
//
//	go run ./protogen ../proto
//
// An import is looked for in the folder first, then among the files that the
// packages imported here register: Envoy's come from go-control-plane in the
// version that go.mod pins, so that none of them is copied.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
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

// plugins are the generators, each a tool of this module.
var plugins = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: protogen FOLDER")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string) error {
	names, err := fs.Glob(os.DirFS(folder), "dynxds/*/*/*.proto") // as packages are named
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no .proto file in %s", folder)
	}
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{folder}},
			protocompile.ResolverFunc(func(name string) (protocompile.SearchResult, error) { // among those that this program was linked with
				file, err := protoregistry.GlobalFiles.FindFileByPath(name)
				return protocompile.SearchResult{Desc: file}, err
			}),
		},
		// The comments of the .proto files go into the Go code.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return err
	}
	// What is imported comes first.
	var all []*descriptorpb.FileDescriptorProto
	seen := make(map[string]bool)
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, file := range files {
		add(file)
	}
	for _, tool := range plugins {
		request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: proto.String("paths=source_relative"), ProtoFile: all}
		if err := generate(ctx, tool, request, folder); err != nil {
			return fmt.Errorf("%s: %w", tool, err)
		}
	}
	return nil
}

// generate runs a plugin and writes the files it answers with beside the .proto files.
func generate(ctx context.Context, tool string, request *pluginpb.CodeGeneratorRequest, folder string) error {
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
		if err := os.WriteFile(filepath.Join(folder, filepath.FromSlash(file.GetName())), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
