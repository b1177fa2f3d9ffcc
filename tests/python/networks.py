"""Networks as people write them: torchvision's names, skips, attention."""

import torch
from torch import nn


def small(features=6):
    return nn.Sequential(nn.Conv2d(3, features, 3, padding=1), nn.ReLU(inplace=True),
                         nn.Conv2d(features, features, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(features, 3, 3, padding=1), nn.Sigmoid())


class BasicBlock(nn.Module):
    def __init__(self, before, after, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride > 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """torchvision's, with a quarter of its layers and an eighth of its channels."""

    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, classes)
        for module in self.modules():  # as if it had been trained
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.uniform_(-0.1, 0.1)
                module.running_var.uniform_(0.5, 1.5)

    def _forward_impl(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))

    def forward(self, x):
        return self._forward_impl(x)


def double(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = double(3, 6), double(6, 8), double(8, 8)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.out2 = nn.ConvTranspose2d(8, 8, 2, 2), double(16, 6)
        self.up1, self.out1 = nn.ConvTranspose2d(6, 6, 2, 2), double(12, 6)
        self.head = nn.Conv2d(6, 3, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        y = self.bottom(self.pool(b))
        y = self.out2(torch.cat([self.up2(y), b], 1))
        y = self.out1(torch.cat([self.up1(y), a], 1))
        return torch.sigmoid(self.head(y))


class ViT(nn.Module):
    """For pictures of 16 by 16."""

    def __init__(self, width=12, classes=5):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=0, activation="gelu", batch_first=True, norm_first=True) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        count = x.shape[0]
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(count, -1, -1), x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Asks(nn.Module):
    """Its way depends on what it sees."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        y = self.conv(x)
        if y.mean() > 0:
            return y
        return torch.relu(y)


class Tied(nn.Module):
    """Two convolutions with one weight; their pictures are normalised by buffers, before and after."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.middle = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.last.weight = self.first.weight
        self.register_buffer("mean", torch.full((1, 3, 1, 1), 0.4))
        self.register_buffer("grid", torch.rand(1, 3, 1, 24))

    def forward(self, x):
        x = x - self.mean + self.grid.expand(x.size(0), -1, x.size(2), -1)
        return self.middle(self.last(torch.tanh(self.first(x)))) + self.mean


class Rows(nn.Module):
    """A recurrent cell that goes from row to row."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(72, 16), nn.Linear(16, 72)

    def forward(self, x):
        state, rows = x.new_zeros(x.size(0), 16), []
        for i in range(x.size(2)):
            state = self.cell(x[:, :, i].flatten(1), state)
            rows.append(self.out(state).view(-1, 3, 24))
        return torch.stack(rows, 2)


def make():
    torch.manual_seed(1)
    return small()


def make_resnet():
    torch.manual_seed(2)
    return ResNet()
