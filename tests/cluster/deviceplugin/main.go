// A device plugin that hands out GPUs which aren't there, for end-to-end tests.
//
//	deviceplugin SOCKET FOLDER UUID...
//
// SOCKET lies in the kubelet's folder plugins_registry, where the kubelet finds it by itself. Each container that asks for
// nvidia.com/gpu gets what NVIDIA's plugin and container runtime would give it: NVIDIA_VISIBLE_DEVICES, device nodes
// /dev/nvidiaN (of /dev/null) and, by FOLDER mounted at the same place, an nvidia-smi. FOLDER/driver.sh is run by each
// bash that starts (BASH_ENV): it makes /proc/driver/nvidia, which no mount of a container can bring.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	device "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type plugin struct {
	device.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer
	socket, folder string
	uuids          []string
}

func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DevicePlugin, Name: "nvidia.com/gpu", Endpoint: p.socket, SupportedVersions: []string{device.Version},
	}, nil
}

func (p *plugin) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	fmt.Println("registered:", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *device.Empty) (*device.DevicePluginOptions, error) {
	return &device.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *device.Empty, stream device.DevicePlugin_ListAndWatchServer) error {
	var devices []*device.Device
	for _, uuid := range p.uuids {
		devices = append(devices, &device.Device{ID: uuid, Health: device.Healthy})
	}
	if err := stream.Send(&device.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *device.AllocateRequest) (*device.AllocateResponse, error) {
	response := &device.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		given := &device.ContainerAllocateResponse{
			Envs: map[string]string{
				"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ","),
				"BASH_ENV":               filepath.Join(p.folder, "driver.sh"),
			},
			Mounts: []*device.Mount{
				{ContainerPath: p.folder, HostPath: p.folder, ReadOnly: true},
				{ContainerPath: "/usr/bin/nvidia-smi", HostPath: filepath.Join(p.folder, "nvidia-smi"), ReadOnly: true},
			},
		}
		for _, id := range container.DevicesIds {
			for minor, uuid := range p.uuids {
				if uuid == id {
					path := fmt.Sprintf("/dev/nvidia%d", minor)
					given.Devices = append(given.Devices, &device.DeviceSpec{ContainerPath: path, HostPath: "/dev/null", Permissions: "rw"})
				}
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, given)
	}
	return response, nil
}

func main() {
	p := &plugin{socket: os.Args[1], folder: os.Args[2], uuids: os.Args[3:]}
	if err := os.RemoveAll(p.socket); err != nil {
		panic(err)
	}
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	device.RegisterDevicePluginServer(server, p)
	registration.RegisterRegistrationServer(server, p)
	panic(server.Serve(listener))
}
