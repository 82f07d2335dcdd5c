/* network_list.h: networks between chips, one row each; included by network.c alone.
 *
 * B/s are one way. `link` is what the wires of one device carry inside a node; `nic` is one network card, of which a
 * node has `nics`. The other figures are measured by nccl-tests at 1 GB and more, as bus bandwidth, which is what each
 * device sends and receives if the collective is a ring; 0: no measurement is known. `delay` is what a collective
 * takes beside its bytes: 8 H200 reach 40 GB/s with 1 MiB, 107 with 4, 220 with 16, 347 with 64, 436 with 256 and 464
 * with 1 GiB, half of their best with 20 MiB, which take 45 us. `nic_delay` is the same across nodes, for each doubling
 * of their number: 4 x 8 B200 reach 5.4 with 1 MiB, 64 with 16, 157 with 64, 229 with 256 and 362 with 1 GiB, half with
 * 200 MiB, which take 540 us. */

/* clang-format off */

/* ---- NVIDIA ---- */
{.name = "DGX V100", .aliases = "dgx1,dgx2", .chips = "V100 SXM2 16GB,V100 SXM2 32GB", .node = 8, .link = 150e9,
 .nics = 4, .nic = 12.5e9, NETWORK_DELAYS, .source = "V100 and DGX-1 data sheets"},
{.name = "DGX A100", .aliases = "a100,hdr", .chips = "A100 40GB SXM,A100 80GB SXM", .node = 8, .link = 300e9,
 .reduce = 235e9, .nics = 8, .nic = 25e9, .nic_adds = true, NETWORK_DELAYS, .source = "nccl-tests #212; DGX A100 data sheet"},
{.name = "AWS p4d", .aliases = "p4d,p4de,efa", .node = 8, .link = 300e9, .reduce = 235e9, .nics = 4, .nic = 12.5e9,
 .nic_reduce = 7.5e9, NETWORK_DELAYS, .source = "nccl-tests: 57, 32, 30 GB/s on 2, 3, 4 nodes",
 .note = "figures of two nodes mislead: half of the ring stays inside"},
{.name = "DGX H100", .aliases = "h100,h200,ndr,dgx h200", .chips = "H100 SXM5,H200 SXM,H20", .node = 8, .link = 450e9,
 .reduce = 478e9, .gather = 361e9, .adds = true, .nics = 8, .nic = 50e9, .nic_reduce = 46e9, .nic_adds = true, NETWORK_DELAYS,
 .source = "ml-engineering, network; nccl-tests #272",
 .note = "a ring alone reaches 367 GB/s in a node; NVLS lets the switch add"},
{.name = "AWS p5en", .aliases = "p5,p5en", .node = 8, .link = 450e9, .reduce = 478e9, .gather = 361e9, .adds = true,
 .nics = 8, .nic = 50e9, .nic_reduce = 45.6e9, NETWORK_DELAYS, .source = "nccl-tests: ring 365 GB/s on 4 nodes"},
{.name = "GCP a3-high", .aliases = "a3,a3-highgpu", .node = 8, .link = 450e9, .reduce = 478e9, .gather = 361e9,
 .adds = true, .nics = 4, .nic = 25e9, NETWORK_DELAYS, .source = "Google Cloud: 12.5 GB/s per GPU"},
{.name = "GCP a3-mega", .aliases = "a3-megagpu", .node = 8, .link = 450e9, .reduce = 478e9, .gather = 361e9,
 .adds = true, .nics = 8, .nic = 25e9, NETWORK_DELAYS, .source = "Google Cloud: 25 GB/s per GPU"},
{.name = "HGX H800", .aliases = "h800", .chips = "H800", .node = 8, .link = 200e9, .reduce = 215e9, .adds = true, .nics = 8,
 .nic = 50e9, .nic_adds = true, NETWORK_DELAYS, .source = "DeepSeek, DeepEP; nccl #1374"},
{.name = "DGX B200", .aliases = "b200", .chips = "B200,B300", .node = 8, .link = 900e9, .reduce = 842e9, .gather = 682e9,
 .adds = true, .nics = 8, .nic = 50e9, .nic_reduce = 47.75e9, .nic_adds = true, NETWORK_DELAYS,
 .source = "nccl-tests #290: NVLS 838 to 846, ring 682; 382 on 4 nodes at 16 GiB"},
{.name = "GB200 NVL72", .aliases = "gb200,nvl72", .chips = "GB200,GB300", .node = 72, .link = 900e9, .reduce = 811e9,
 .adds = true, .nics = 72, .nic = 50e9, .nic_adds = true, NETWORK_DELAYS, .source = "8 GPUs in 2 trays: 811; vendor: 680 to 850"},
{.name = "NVLink bridge", .chips = "A100 80GB PCIe,H100 PCIe,H100 NVL", .node = 2, .link = 300e9, .nics = 2,
 .nic = 25e9, NETWORK_DELAYS, .source = "data sheets: pairs of cards; beyond them PCIe and the network"},
{.name = "NVLink bridge of 4", .chips = "H200 NVL", .node = 4, .link = 450e9, .nics = 4, .nic = 50e9, NETWORK_DELAYS,
 .source = "data sheet: four cards"},
{.name = "RTX 3090 bridge", .chips = "RTX 3090,RTX A6000,A40", .node = 2, .link = 56.25e9, .nics = 2, .nic = 15.5e9, NETWORK_DELAYS,
 .source = "GA102 whitepaper; beyond a pair PCIe 4"},
/* ---- PCIe ---- */
{.name = "PCIe 3", .chips = "T4", .node = 8, .link = 15.5e9, .nics = 1, .nic = 12.5e9, NETWORK_DELAYS,
 .source = "PCIe 3.0 x16"},
{.name = "PCIe 4 x8 through the host", .chips = "RTX 4060,RTX 4060 Ti 16GB", .node = 8, .link = 15.5e9,
 .reduce = 7.75e9, .nics = 1, .nic = 12.5e9, NETWORK_DELAYS, .source = "PCIe 4.0 x8, twice"},
{.name = "PCIe 5 x8", .chips = "RTX 5060 Ti 16GB", .node = 8, .link = 31e9, .reduce = 14e9, .nics = 1, .nic = 25e9,
 NETWORK_DELAYS, .source = "PCIe 5.0 x8, and half of what x16 reaches"},
{.name = "PCIe 4", .chips = "L40S,L4,A10,A10G,RTX 6000 Ada", .node = 8, .link = 31e9, .nics = 1, .nic = 25e9, NETWORK_DELAYS, .source = "PCIe 4.0 x16"},
{.name = "PCIe 4 through the host", .aliases = "no p2p", 
 .chips = "RTX 3060,RTX 3070,RTX 3080,RTX 3080 Ti,RTX 4070,RTX 4070 Ti,RTX 4080,RTX 4090", .node = 8, .link = 31e9,
 .reduce = 15.5e9, .nics = 1, .nic = 25e9, NETWORK_DELAYS, .source = "PCIe 4.0 x16, twice",
 .note = "the driver has no transfers between cards: every byte goes to host memory and back"},
{.name = "PCIe 5", .chips = "RTX 5070,RTX 5070 Ti,RTX 5080,RTX 5090,RTX PRO 6000", .node = 8, .link = 63e9, .reduce = 28e9, .nics = 1, .nic = 50e9, NETWORK_DELAYS,
 .source = "nccl-tests: 8 RTX 5090 28 GB/s, 4 of them 35; RTX PRO 6000 with P2P 54"},
/* ---- One device in a node ---- */
{.name = "GH200 nodes", .chips = "GH200", .node = 1, .nics = 1, .nic = 50e9, NETWORK_DELAYS,
 .source = "MGX: one port of 400 Gb/s for each"},
{.name = "DGX Spark", .chips = "GB10", .node = 1, .nics = 1, .nic = 25e9, NETWORK_DELAYS,
 .source = "data sheet: ConnectX-7, 200 Gb/s"},
/* ---- Amazon, Intel ---- */
{.name = "AWS trn2", .chips = "Trainium 2", .node = 16, .link = 640e9, .nics = 16, .nic = 25e9, NETWORK_DELAYS,
 .source = "Neuron's page of Trainium2; 3.2 Tb/s for 16 chips"},
{.name = "Gaudi 3 node", .chips = "Gaudi 3", .node = 8, .link = 525e9, .nics = 8, .nic = 75e9, NETWORK_DELAYS,
 .source = "Hot Chips 2024: 21 of 24 ports of 200 Gb/s inside the node"},
/* ---- AMD ---- */
{.name = "MI250X node", .chips = "MI250X", .node = 4, .link = 400e9, .nics = 4, .nic = 25e9, NETWORK_DELAYS,
 .source = "AMD MI200 material; Frontier has one 25 GB/s port per card"},
{.name = "MI300X node", .aliases = "mi300x", .chips = "MI300X,MI325X,MI350X,MI355X", .node = 8, .link = 448e9,
 .reduce = 313e9, .nics = 8, .nic = 50e9, NETWORK_DELAYS, .source = "rccl-tests, 8 GPUs 313",
 .note = "64 GB/s per pair: a group of 2 reaches 48 GB/s"},
/* ---- TPU: a slice is the node; links of a chip x their speed ---- */
{.name = "TPU v3 pod", .chips = "TPU v3", .node = 1024, .link = 140e9, .nics = 256, .nic = 12.5e9, NETWORK_DELAYS,
 .source = "4 links of 35 GB/s"},
{.name = "TPU v4 pod", .aliases = "tpu v4 slice", .chips = "TPU v4", .node = 4096, .link = 270e9, .nics = 1024,
 .nic = 25e9, NETWORK_DELAYS, .source = "scaling book: 6 links of 45 GB/s, 25 GB/s per host of 4 chips"},
{.name = "TPU v5e pod", .chips = "TPU v5e", .node = 256, .link = 180e9, .nics = 32, .nic = 25e9, NETWORK_DELAYS,
 .source = "scaling book: 4 links of 45 GB/s, 25 GB/s per host of 8 chips"},
{.name = "TPU v5p pod", .chips = "TPU v5p", .node = 8960, .link = 540e9, .nics = 2240, .nic = 25e9, NETWORK_DELAYS,
 .source = "scaling book: 6 links of 90 GB/s, 25 GB/s per host of 4 chips"},
{.name = "TPU v6e pod", .chips = "TPU v6e", .node = 256, .link = 360e9, .nics = 32, .nic = 25e9, NETWORK_DELAYS,
 .source = "scaling book: 4 links of 90 GB/s, 25 GB/s per host of 8 chips"},
/* ---- Machines without a fast link ---- */
{.name = "Ethernet 1G", .aliases = "1gbe", .node = 1, .nics = 1, .nic = 0.125e9, NETWORK_DELAYS, .source = "1 Gb/s"},
{.name = "Ethernet 10G", .aliases = "10gbe,ethernet", .node = 1, .nics = 1, .nic = 1.25e9, NETWORK_DELAYS, .source = "10 Gb/s"},
{.name = "Ethernet 25G", .aliases = "25gbe", .node = 1, .nics = 1, .nic = 3.125e9, NETWORK_DELAYS, .source = "25 Gb/s"},
{.name = "Ethernet 100G", .aliases = "100gbe", .node = 1, .nics = 1, .nic = 12.5e9, NETWORK_DELAYS, .source = "100 Gb/s"},
